"""Guidance: denoisers made of denoisers, which sharpen a condition, follow a classifier, or keep to known vectors."""
