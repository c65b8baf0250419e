"""Choice: how likely each of a few answers is."""
