"""Kernels beside the truth."""
