"""An opened stream or topic, and where it ends: the next sequence, and the segment that appends go to."""
