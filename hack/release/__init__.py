"""What a release consists of, made from this repository alone: make release."""
