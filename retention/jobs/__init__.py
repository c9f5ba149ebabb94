"""One file per scheduled job; each runs under `spark-submit` and as `python -m retention.jobs.NAME`."""

from __future__ import annotations

import gc

gc.set_threshold(50_000)
"""Importing modules leaves no garbage: collecting it would take a twentieth of a short job's time."""
