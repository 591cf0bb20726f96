"""The kubectl plugin as archives for krew, and its manifest: make krew."""
