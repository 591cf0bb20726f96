"""What each part of the scaler is worth, in simulation."""
