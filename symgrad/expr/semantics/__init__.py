"""The semantics of graphs: interpreters, precision, text."""
