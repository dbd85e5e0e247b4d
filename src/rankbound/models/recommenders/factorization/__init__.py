"""Matrix factorization: the model, its training from interactions, and from lists of codes."""
