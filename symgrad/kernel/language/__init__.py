"""The kernel language: values in scopes, statements, a verifier, an interpreter, a listing."""
