"""S2, the compression of NATS backups: frames and blocks."""
