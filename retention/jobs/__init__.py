"""The scheduled jobs, one module each; `retention-job NAME`, or `spark-submit jobs/NAME.py` in a clone."""

from __future__ import annotations

import gc

gc.set_threshold(50_000)
"""Importing modules leaves no garbage: collecting it would take a twentieth of a short job's time."""
