"""Holds requests while a model has no replica, and hands them on when one is ready (docs/adr/0014-scale-to-zero.md)."""
