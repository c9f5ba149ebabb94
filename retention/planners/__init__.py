"""Planning: one module per operation, from the inputs of a pass, a request or an estimate to its plan."""
