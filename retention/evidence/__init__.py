"""Evidence of the messages that runs removed from files, folded into one file a month and kept after those files."""
