"""Tables in place: planned, changed by entries of their own log, and changed back."""
