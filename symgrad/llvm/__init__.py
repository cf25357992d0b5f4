"""Kernels as LLVM IR, and the CPU that runs them."""
