"""Values that every package uses: policies, inventories, spans, ranges of sequences, subjects, headers, units."""
