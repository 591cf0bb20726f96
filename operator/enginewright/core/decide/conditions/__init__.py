"""What is said: each condition is set in one module, from what the stages found."""
