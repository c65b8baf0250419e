"""Speculative decoding: drafters and acceptance rules."""
