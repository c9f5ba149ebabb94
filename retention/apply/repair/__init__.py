"""Repairs of damage by other programs to a table: wrong clocks, foreign files, resurrected rows, impossible numbers."""
