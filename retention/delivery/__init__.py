"""A consumer's messages, fetched in batches and acknowledged: the server's pull consumer for a lakehouse."""
