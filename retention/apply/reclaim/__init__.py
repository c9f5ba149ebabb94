"""Reclaim: dead files, and records that nobody needs any more, are deleted when the grace is over."""
