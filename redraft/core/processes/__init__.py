"""Processes: how a clean sequence becomes noise, and what Bayes' rule says about the way back."""
