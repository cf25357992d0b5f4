"""Kernels as functions of other frameworks, and functions of others as kernels."""
