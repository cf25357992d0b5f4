"""Dispatch of compiled kernels on a GPU: points, sums over rows, iterations and launches."""
