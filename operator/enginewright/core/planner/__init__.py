"""A planner for MIG slices and whole GPUs: which replica goes where, what does not fit and why, and which layout would
help. It only says; no layout is changed."""
