"""The layout of new rows: partitions, segments, and files divided by deadline."""
