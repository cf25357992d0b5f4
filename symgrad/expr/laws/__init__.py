"""Identities, and the passes that use them: facts, fusing, shrinking, simplification."""
