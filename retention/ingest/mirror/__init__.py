"""Messages carried from one stream to its mirrors and to streams that have it as a source."""
