"""symgrad: a plain Python loss in, one fused GPU kernel out."""
