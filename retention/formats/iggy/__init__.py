"""Apache Iggy's data directories: reads the logs of a topic, its stored offsets and user headers directly."""
