"""Directories of Parquet files as tables in place: without a log, so that only whole files are removed."""
