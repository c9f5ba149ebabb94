"""Key-value buckets: the operations of the broker's clients on keys, on the stream that keeps them (ADR-8, ADR-48)."""
