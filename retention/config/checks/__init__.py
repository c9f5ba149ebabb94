"""The server's refusals of a configuration, and of a change to one."""
