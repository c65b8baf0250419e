"""Spelling correction: a noisy-channel model of errors, combined with a language model of the context."""
