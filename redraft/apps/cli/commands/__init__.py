"""The commands, each a frozen dataclass whose fields are its flags."""
