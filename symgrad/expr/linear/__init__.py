"""Linear algebra of small dense matrices."""
