"""Comparison: several methods under one budget, measured alike."""
