"""Broken and sound language models before the gate of language models, through a real vLLM."""
