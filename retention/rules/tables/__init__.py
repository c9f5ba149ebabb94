"""The rules of tables in place: verdicts on files from bounds, on rows from narrow columns, and both as SQL."""
