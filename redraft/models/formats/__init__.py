"""Checkpoint formats of other projects: one file per model family."""
