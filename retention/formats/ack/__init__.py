"""Logs of acks: their lines, and the files that hold them."""
