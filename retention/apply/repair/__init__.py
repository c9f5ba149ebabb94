"""Repairs of what other hands did to a table: wrong clocks, foreign files, rows that came back, impossible numbers."""
