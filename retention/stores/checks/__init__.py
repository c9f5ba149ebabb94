"""Checks before a store writes: of the object store, of the directory, of a swap."""
