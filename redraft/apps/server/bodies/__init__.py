"""Request bodies: their fields, their parsing, and the structure they ask for."""
