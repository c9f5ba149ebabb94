"""Evidence: what runs took of which files, folded into a file a month, and read long after those files are gone."""
