"""Recorded grids of serving configurations, and the study that replays the builder's search over them."""
