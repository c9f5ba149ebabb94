"""Bytes at a location: local disks and object stores, durable writes, checksums, crash points, failures."""
