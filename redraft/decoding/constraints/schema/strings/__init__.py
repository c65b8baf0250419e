"""Sets of strings and numbers as automata on characters: patterns, formats, bounds, and their spelling in bytes."""
