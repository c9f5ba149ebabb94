"""The script of `spark-submit jobs/plan.py`, and of `python -m jobs.plan` in a clone."""

from __future__ import annotations

from retention.jobs.plan import main

if __name__ == "__main__":
    raise SystemExit(main())
