"""Where models and data come from. ``fetching`` imports every fetcher and what each needs; code that opens files that
are there already imports the part that it uses, and needs none of that."""
