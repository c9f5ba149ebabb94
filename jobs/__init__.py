"""One file per scheduled job; each runs under `spark-submit` and as `python -m jobs.NAME`."""

from __future__ import annotations

import gc

gc.set_threshold(50_000)
"""Modules that are being loaded leave no garbage to collect: looking for it would be a twentieth of a short job."""
