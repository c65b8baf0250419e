"""Runs: a whole experiment as one value, saved, loaded and varied."""
