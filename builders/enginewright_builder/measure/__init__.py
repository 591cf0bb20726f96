"""Instruments of a build: latency layers, energy, the model's work and the device's ceilings. They know no candidate
and no report."""
