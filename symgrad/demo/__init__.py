"""The command line and its demonstration."""
