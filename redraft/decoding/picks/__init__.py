"""Picks: which masked positions a step reveals, and how many."""
