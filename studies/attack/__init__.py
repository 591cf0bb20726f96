"""The operator under attack: hostile replicas beside honest models, with the real operator and a real apiserver."""
