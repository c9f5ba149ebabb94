"""The script of `spark-submit jobs/fold.py`, and of `python -m jobs.fold` in a clone."""

from __future__ import annotations

from retention.jobs.fold import main

if __name__ == "__main__":
    raise SystemExit(main())
