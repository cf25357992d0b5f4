"""The verbs that users call, and the kernels that they return."""
