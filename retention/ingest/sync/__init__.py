"""A stream in step with a stream of a live NATS server: its messages, sequences and times, unchanged."""
