"""Enginewright: a Kubernetes operator that serves only engines that were measured."""

__version__ = "0.1.0"
