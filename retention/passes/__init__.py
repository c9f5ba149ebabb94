"""A pass over a stream: look, decide, hold the plan as a value, carry it out, record it, undo it."""

from __future__ import annotations
