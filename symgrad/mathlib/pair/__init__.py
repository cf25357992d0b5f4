"""Numbers of twice float32's digits, as pairs of float32: their arithmetic and their functions."""
