"""Runs: an experiment as one value, with functions to save, load and vary it."""
