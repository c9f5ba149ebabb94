"""The script of `spark-submit jobs/ingest.py`, and of `python -m jobs.ingest` in a clone."""

from __future__ import annotations

from retention.jobs.ingest import main

if __name__ == "__main__":
    raise SystemExit(main())
