"""Controlled generation: texts with given parts of speech, length, attributes and words."""
