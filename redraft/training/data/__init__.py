"""Data: texts from files and the hub, rows of token ids, and batches in a reproducible order."""
