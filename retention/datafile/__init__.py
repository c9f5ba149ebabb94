"""One Parquet file of messages: read, write, copy and describe it."""
