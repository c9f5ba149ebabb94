"""A stream as plain Parquet files beside a log of this engine."""
