"""The objects that a person holds: a warehouse, its streams and topics, and the consumers of a stream."""
