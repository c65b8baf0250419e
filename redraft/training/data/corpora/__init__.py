"""Corpora whose truth is known: the embedded stories, tasks made of them, the E2E challenge."""
