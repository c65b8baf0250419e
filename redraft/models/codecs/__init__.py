"""Codecs: map tokens to vectors and back, for Gaussian noise."""
