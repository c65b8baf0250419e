"""Commands that measure or inspect a model."""
