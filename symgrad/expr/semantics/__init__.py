"""What graphs mean, and how they read: interpreters, precision, text."""
