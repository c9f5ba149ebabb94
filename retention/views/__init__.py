"""Views of streams, plans and runs for users and programs: text, HTML, JSON entries, messages, numbers."""

from __future__ import annotations
