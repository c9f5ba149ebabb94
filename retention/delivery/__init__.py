"""A consumer's messages, fetched in batches and answered: the server's pull consumer for a lakehouse."""
