"""Restore of messages from an archive into a table."""
