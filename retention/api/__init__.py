"""The objects of the Python API: a warehouse, its streams and topics, and the consumers of a stream."""
