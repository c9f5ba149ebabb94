"""An opened stream or topic, and its end: the next sequence, and the segment for appends."""
