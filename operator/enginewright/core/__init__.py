"""The pure core: data in, data out. No framework, no wire, no clock, no environment."""
