"""From a plan to a swap: guards, staging, archives, the commit, its record, undo and recovery."""
