"""What runs compiled kernels on a GPU: points, sums over rows, iterations and launches."""
