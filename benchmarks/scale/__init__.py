"""Runs that stand for a terabyte: as many subjects, files and acks, and hardly any payload."""
