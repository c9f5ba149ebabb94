"""JetStream's rules, one module a rule, and the pass that applies them in the server's order."""
