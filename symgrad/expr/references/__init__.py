"""Operations by plain algorithms in NumPy's numbers, where NumPy has none of its own."""
