"""Rows leave a Delta table of another owner: this engine beside what its owner would run instead."""
