"""Gathers what one pass may look at, and turns the apiserver's JSON into the core's plain views."""
