"""Plans as WGSL, and the GPU that runs it."""
