"""In which order candidates are tried: the table of what the benchmarks tell, and the order replayed on them.

``python -m trial_order looks`` counts what the benchmarked models are made of (PyTorch, timm and torchvision must be
here); ``python -m trial_order trials`` collects what builds took from their reports; ``python -m trial_order
experience`` makes the table; ``python -m trial_order replay`` writes
``docs/benchmarks/trial-order.md``.
"""
