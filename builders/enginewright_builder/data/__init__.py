"""Evaluation and calibration data: read, compared by content, made up where the user gives none."""
