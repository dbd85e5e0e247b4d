"""How results show themselves in a notebook: tables in HTML, plots that need no network, and plain values.

The results (`Evaluation`, `Comparison`, `Bounds`, `Distribution`, `Lists`, rankers) import the modules of this package
inside their methods, so that nothing here is loaded before it is used.
"""
