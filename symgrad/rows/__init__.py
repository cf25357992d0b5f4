"""Losses over data: from a function of one row to sums, gradients and fits over tables."""
