"""Bytes from elsewhere and our rows: NATS backups, S2 streams, JSON lines."""
