"""The GPUs there are, each opened once: its queue, its pipelines and its clock."""
