"""JetStream's rules, one module per rule, and the pass that applies them in the server's order."""
