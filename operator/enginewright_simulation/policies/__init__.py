"""The operator's scaler, its peers, and one that knows the future; one a file."""
