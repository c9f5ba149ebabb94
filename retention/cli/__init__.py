"""The command line: thin; every decision lies below."""
