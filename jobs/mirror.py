"""The script of `spark-submit jobs/mirror.py`, and of `python -m jobs.mirror` in a clone."""

from __future__ import annotations

from retention.jobs.mirror import main

if __name__ == "__main__":
    raise SystemExit(main())
