"""Hard constraints on the text: regular expressions, JSON schemas, required and banned words, lengths, choices."""
