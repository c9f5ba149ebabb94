"""The same retention work done by this engine and by hand with other libraries, side by side on the same files."""
