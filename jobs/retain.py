"""The script of `spark-submit jobs/retain.py`, and of `python -m jobs.retain` in a clone."""

from __future__ import annotations

from retention.jobs.retain import main

if __name__ == "__main__":
    raise SystemExit(main())
