"""The layout of new rows: partitions, segments, and files split by deadline."""
