"""Kernels for other places than Python: ES modules for WebGPU, and pages that fit a model."""
