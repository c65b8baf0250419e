"""Data: texts from files and hubs, rows made from them, batches in a fixed order."""
