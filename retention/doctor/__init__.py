"""Checks of a machine, a warehouse and its streams before a run fails: findings, each with its remedy."""
