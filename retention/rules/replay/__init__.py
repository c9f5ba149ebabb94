"""Replay: what a server would have done with each publish, had it had some limits from the first message on.

A pass answers as a server answers an update of its configuration; a replay answers as a server that applies its limits
at each publish and each expiry, at their own instants (docs/semantics/replay.md).
"""
