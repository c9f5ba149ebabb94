"""Iggy's rules, which remove whole sealed segments, as servers 0.8 and 0.9 do."""
