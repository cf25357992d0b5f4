"""What a kernel is, in no language."""
