"""Objectives: which times to draw, and what a prediction costs there."""
