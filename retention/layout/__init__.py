"""Where new rows lie: partitions, segments, and files apart by deadline."""
