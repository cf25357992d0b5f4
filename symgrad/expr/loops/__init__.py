"""Loops and choices as users write them, and implicit derivatives of converged ones."""
