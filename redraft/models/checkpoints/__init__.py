"""Checkpoints on disk: configuration as JSON, reading, writing, locking, adapters."""
