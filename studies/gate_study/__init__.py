"""How often the accuracy gate errs: sabotaged engines that it admits, sound ones that it refuses."""
