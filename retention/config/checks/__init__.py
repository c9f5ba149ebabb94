"""What the server refuses of a configuration, and of a change to one."""
