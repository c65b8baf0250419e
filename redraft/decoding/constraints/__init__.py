"""Rules that a text must obey, exactly: patterns, JSON schemas, words, lengths, choices."""
