"""From a JSON schema to an automaton on bytes that accepts only valid texts, or an error that names the keyword."""
