"""The broker's own retention rules for message streams in a lakehouse: plan, explain, apply, undo."""
