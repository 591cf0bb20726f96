"""The accuracy gate: is a candidate close enough to the source model, how sure is that, and where does it drift."""
