"""Values that everything speaks of: policies, inventories, spans, ranges of sequences, subjects, headers, units."""
