"""The script of `spark-submit jobs/reclaim.py`, and of `python -m jobs.reclaim` in a clone."""

from __future__ import annotations

from retention.jobs.reclaim import main

if __name__ == "__main__":
    raise SystemExit(main())
