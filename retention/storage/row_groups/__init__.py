"""Row groups of Parquet files as bytes: found, checked page by page, and joined with others in a new file."""
