"""The names of the rules, in an order that saved plans rely on."""

from __future__ import annotations

RULE_NAMES = (
    "interest",
    "workqueue",
    "max_msgs",
    "max_bytes",
    "max_msgs_per_subject",
    "max_age",
    "msg_ttl",
    "delete",
    "purge",
    "rollup",
    "message_expiry",
    "max_topic_size",
    "delete_segments",
    "delete_retention",
    "drop",
    "max_subjects",
    "erase",
    "refused",
    "duplicate",
)
"""Every rule by name; saved plans contain indexes into this tuple, so a new name is added at its end."""
