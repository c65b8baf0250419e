"""Commands: a frozen dataclass each, whose fields are its flags."""
