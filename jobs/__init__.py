"""One file per scheduled job; each runs under `spark-submit` and as `python -m jobs.NAME`."""
