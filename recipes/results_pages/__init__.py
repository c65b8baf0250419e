"""The tables and pictures of the results pages, from committed rows; `recipes/write_results.py` writes them."""
