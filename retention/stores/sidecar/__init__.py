"""What is kept beside a table and may be lost: statistics, subject digests, inventories, the next due instant."""
