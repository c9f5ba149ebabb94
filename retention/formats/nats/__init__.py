"""Backups from nats-server: the archive, its messages and its consumers."""
