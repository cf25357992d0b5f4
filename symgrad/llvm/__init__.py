"""Plan -> LLVM IR -> CPU."""
