"""Interest in a stream's messages: its consumers reconciled, edited, and moved on by logs of acks."""
