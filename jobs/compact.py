"""The script of `spark-submit jobs/compact.py`, and of `python -m jobs.compact` in a clone."""

from __future__ import annotations

from retention.jobs.compact import main

if __name__ == "__main__":
    raise SystemExit(main())
