"""Carries out a plan: children first, then one status write, then events."""
