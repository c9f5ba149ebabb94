"""Iggy's rules: whole sealed segments, as server 0.8 and 0.9 drop them."""
