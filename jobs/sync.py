"""The script of `spark-submit jobs/sync.py`, and of `python -m jobs.sync` in a clone."""

from __future__ import annotations

from retention.jobs.sync import main

if __name__ == "__main__":
    raise SystemExit(main())
