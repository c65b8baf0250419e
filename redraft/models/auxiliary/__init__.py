"""Auxiliary networks of a model: drafters, taggers, the error head, and the attribute classifier."""
