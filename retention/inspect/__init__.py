"""Read-only queries: state, messages, latest values, consumers, offsets, statistics, exports."""
