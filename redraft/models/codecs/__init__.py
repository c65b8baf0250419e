"""Codecs: tokens to vectors and back, for Gaussian noise."""
