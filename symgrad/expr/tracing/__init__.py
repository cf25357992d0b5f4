"""Tracing: a Python function becomes a graph, and what its loops wrote out is rolled up again."""
