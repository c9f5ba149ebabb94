"""The command line: thin, for every decision is made in the packages below."""
