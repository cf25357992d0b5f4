"""Linear algebra of small matrices."""
