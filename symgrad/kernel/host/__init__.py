"""The host's side: memory for results, arrays on devices, threads, and what watches them."""
