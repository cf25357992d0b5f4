"""Kernels as WGSL, and the GPUs that run them."""
