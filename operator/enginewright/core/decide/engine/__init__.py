"""The engine stage: is there a proven engine for this spec? Looked up first, built only if no Job has built it yet."""
