"""Kernels as WGSL that a person can read, and that naga and Tint both take."""
