"""Reclaim: dead files, and records that are no longer needed, are deleted once the grace period is over."""
