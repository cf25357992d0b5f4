"""Kernels of arrays as layers of networks use them: products of matrices, scans, rows."""
