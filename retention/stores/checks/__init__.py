"""Checks before a store writes: of the object store, the directory and the swap."""
