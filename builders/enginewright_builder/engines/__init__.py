"""Engines: one module a backend, each behind :class:`~enginewright_builder.engines.base.Engine`."""
