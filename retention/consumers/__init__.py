"""Consumers: what they are set to, what they have been given, and what they have acknowledged."""
