"""Passes: graphs are written into kernels, and kernels are put in order and taken apart."""
