"""Forward, reverse and mixed mode, also through loops, choices and arrays."""
