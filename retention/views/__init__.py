"""Views of streams, plans and runs for people and programs: text, HTML, JSON entries, messages, numbers."""

from __future__ import annotations
