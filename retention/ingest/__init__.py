"""Ways in: messages are checked, get their sequences, and are committed once."""
