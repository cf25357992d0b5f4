"""The hash-consed DAG: its nodes, regions and arrays, and walks over them."""
