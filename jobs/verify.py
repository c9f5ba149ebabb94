"""The script of `spark-submit jobs/verify.py`, and of `python -m jobs.verify` in a clone."""

from __future__ import annotations

from retention.jobs.verify import main

if __name__ == "__main__":
    raise SystemExit(main())
