"""Foreign formats to and from our rows: Iggy logs, NATS backups, ack logs, S2 streams, JSON lines."""
