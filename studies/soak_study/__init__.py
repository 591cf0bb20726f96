"""Many lives of objects one after another: what the operator keeps of them."""
