"""The kernel language: kernels before they are printed for any device."""
