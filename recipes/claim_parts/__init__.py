"""What `recipes/claims.py` measures besides stories, lengths and fidelity."""
