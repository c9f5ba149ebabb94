"""The script of `spark-submit jobs/doctor.py`, and of `python -m jobs.doctor` in a clone."""

from __future__ import annotations

from retention.jobs.doctor import main

if __name__ == "__main__":
    raise SystemExit(main())
