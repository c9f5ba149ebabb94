"""Key-value buckets: the broker's clients' operations on keys, on the stream that keeps them (ADR-8, ADR-48)."""
