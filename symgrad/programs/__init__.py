"""Programs: the kernel language as users write it, and their derivatives."""
