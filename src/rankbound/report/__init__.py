"""What a person sees: tables, figures, and the page that holds them."""
