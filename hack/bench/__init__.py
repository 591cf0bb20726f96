"""Benchmarks on a GPU: every candidate of every model, side by side, and what the product would ship."""
