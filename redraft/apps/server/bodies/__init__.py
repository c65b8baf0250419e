"""Request bodies: their fields, how they are read, and what they ask of the text."""
