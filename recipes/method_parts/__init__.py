"""What `recipes/methods.py` measures besides the tables of methods."""
