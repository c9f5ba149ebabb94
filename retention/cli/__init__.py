"""The command line: a thin layer; every decision is made in the packages below."""
