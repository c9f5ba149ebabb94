"""From an archive back into a table."""
