"""What `recipes/drafts.py` measures besides training texts and certainty."""
