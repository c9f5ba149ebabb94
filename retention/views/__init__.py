"""What people and programs see of streams, plans and runs: text, HTML, JSON entries, messages, numbers."""

from __future__ import annotations
