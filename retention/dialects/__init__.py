"""Dialects: the differences between servers in a partitioned log, JetStream's streams and Iggy's topics."""
