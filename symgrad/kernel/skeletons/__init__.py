"""Skeletons: programs in the kernel language, each written once for all back ends."""
