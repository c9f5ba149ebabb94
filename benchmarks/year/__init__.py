"""A year of hourly publishes and nightly maintenance, under a clock that is set forward by hand."""
