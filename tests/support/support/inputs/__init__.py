"""Small models with inputs of every kind, and what becomes of each: ``table.py`` has a line for each of them."""
