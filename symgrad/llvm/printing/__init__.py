"""Kernels as LLVM IR: where their values stand, loops, masks, and accesses of memory."""
