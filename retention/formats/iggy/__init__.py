"""Apache Iggy's data directories: the logs of a topic, its stored offsets and user headers, read as they lie."""
