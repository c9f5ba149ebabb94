"""Who still needs what of a stream: its consumers reconciled, edited, and moved on by logs of acks."""
