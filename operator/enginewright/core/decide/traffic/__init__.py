"""Who gets requests, as data: shares through a Gateway, and who takes them while no replica answers."""
