"""Ack logs: their lines and their files."""
