"""Triton: its model configuration, its model repository, the server itself, and the proof that it serves a
repository."""
