"""Candidates: built in a time budget, gated, raced in each batch bucket, and what of them ships."""
