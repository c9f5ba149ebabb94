"""A live NATS server: connections as its users know them, and a JetStream stream read in bulk."""

from __future__ import annotations
