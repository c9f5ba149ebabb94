"""Replays of streams: what a server that had some limits from the first message on would have held, and when."""
