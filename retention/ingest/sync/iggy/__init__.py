"""A topic in step with a topic of a live Iggy server: its partitions, offsets, ids, times, headers and payloads."""
