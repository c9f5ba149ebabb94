"""What a store asks before it writes: of the object store, of the directory, of a swap."""
