"""What ``enginewright`` does besides running the operator: a file for each command."""
