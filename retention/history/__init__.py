"""The runs of a stream, append-only: the intent and the outcome of each."""
