"""Verification: what is stored is what was written, and the records of runs agree with it."""
