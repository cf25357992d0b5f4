"""What is said of kernels and calls: precision, time, memory, progress, sources in notebooks."""
