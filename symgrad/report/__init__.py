"""Reports on kernels and calls: precision, time, memory, progress, sources in notebooks."""
