"""Ways in: publish, append, import and ingest, all through one exactly-once append."""

from __future__ import annotations
