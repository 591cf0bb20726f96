"""One module for each system that the operator talks to. Every call has a deadline; every failure has a family."""
