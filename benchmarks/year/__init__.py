"""A year of hourly publishes and nightly maintenance, under a manual clock."""
