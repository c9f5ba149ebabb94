"""Checks of a machine, a warehouse and its streams before something fails: findings, each with its remedy."""
