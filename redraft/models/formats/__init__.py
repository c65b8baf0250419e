"""Checkpoint formats of other projects: one file per family."""
