"""What `recipes/spelling.py` trains, compares with, and judges by."""
