"""Runs at the scale of a terabyte: as many subjects, files and acks, with hardly any payload."""
