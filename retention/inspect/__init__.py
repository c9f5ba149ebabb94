"""Questions that change nothing: state, messages, latest values, consumers, offsets, statistics, exports."""
