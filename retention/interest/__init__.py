"""Interest in a stream's messages: its consumers reconciled, edited, and advanced by ack logs."""
