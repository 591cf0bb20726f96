"""Builds the container images of ``builders/images`` on a machine that reaches no container registry."""
