"""Sources of rows, each row taken once: the new rows, and the record of those taken."""
