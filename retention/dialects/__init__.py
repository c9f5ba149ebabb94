"""Differences of servers in what they do with a partitioned log: JetStream's streams, and Iggy's topics."""
