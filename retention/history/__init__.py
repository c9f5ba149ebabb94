"""The runs of a stream, append-only: what each set out to do, and what became of it."""
