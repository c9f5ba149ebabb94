"""Conversion of foreign formats to and from rows: Iggy logs, NATS backups, ack logs, S2 streams, JSON lines."""
