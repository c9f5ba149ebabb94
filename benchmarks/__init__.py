"""Benchmarks: the same retention work by this engine and by hand with other libraries, on the same files."""
