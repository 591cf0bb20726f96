"""How far the planner is from the optimum, and how it does beside first-fit, best-fit and FGD."""
