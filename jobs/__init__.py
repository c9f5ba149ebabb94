"""Scripts of `spark-submit jobs/NAME.py`, and of `python -m jobs.NAME` in a clone; `retention.jobs` has the jobs."""
