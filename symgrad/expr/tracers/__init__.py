"""Tracers, the values of a traced function: expressions, arrays of them, integers, nests."""
