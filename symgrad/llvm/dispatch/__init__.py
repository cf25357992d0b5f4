"""Dispatch of compiled kernels on the CPU: points, sums over rows, iterations and launches."""
