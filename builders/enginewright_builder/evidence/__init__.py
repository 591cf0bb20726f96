"""What a build leaves behind for its readers: every number of the report, and what follows from it."""
