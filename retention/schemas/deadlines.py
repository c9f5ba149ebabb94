"""Deadlines of messages: the values of `deadline_ns` that are no instants."""

from __future__ import annotations

NEVER = 2**63 - 1
"""`deadline_ns` of a message that never expires."""
