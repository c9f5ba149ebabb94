"""Sources that rows are taken from, each once: what came since, and what was taken."""
