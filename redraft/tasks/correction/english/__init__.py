"""Correction of English, or another language with a list of words, by a causal model."""
