"""One Parquet file of messages: reads, writes, copies and describes it."""
