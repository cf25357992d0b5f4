"""Optimisation: methods as traced functions, many problems at once, and SciPy's verbs."""
