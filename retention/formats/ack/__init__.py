"""Logs of acks, and where they lie."""
