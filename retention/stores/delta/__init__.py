"""A stream as a Delta table."""
