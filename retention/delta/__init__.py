"""The Delta protocol: logs are read in columns and written by put-if-absent, for tables of any writer."""
