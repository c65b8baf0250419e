"""Correction: spelling errors as a noisy channel, and a model of the text around them."""
