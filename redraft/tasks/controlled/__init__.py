"""Controlled generation: texts of given parts of speech, length, attributes and words."""
