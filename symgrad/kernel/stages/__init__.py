"""Stages: arrays as functions of their indices, each a kernel of the kernel language."""
