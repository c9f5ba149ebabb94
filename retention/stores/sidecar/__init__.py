"""Files beside a table that may be lost: statistics, subject digests, inventories, the next due instant."""
