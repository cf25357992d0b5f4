"""Fits in SciPy's words."""
