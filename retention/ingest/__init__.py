"""Ingestion: messages are checked, assigned sequences, and committed exactly once."""
