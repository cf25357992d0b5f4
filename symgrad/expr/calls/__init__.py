"""Calls on expressions: the names of NumPy, SciPy and SymPy, verbs, random numbers."""
