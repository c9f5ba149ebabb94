"""Retention rules: pure functions on statistics and Arrow tables, one module a rule, in the server's order.

One pass first releases the messages that no consumer needs (docs/semantics/consumers-release.md). The rest it judges
in the order of `STREAM.UPDATE` (docs/semantics/limits.md): head trims, then the limit per subject, then expiry; between
the latter two, deleted subjects go (docs/semantics/log-compaction.md). A message that several rules would remove
belongs to the first of them. Beside them stand the removals that people ask for (delete, purge, rollup, drop), which
are no part of a pass, and the rules of topics, whose passes have no others: segments that people asked to remove by
`delete_segments`, and that could not go at once, a later pass takes.
"""

from __future__ import annotations

from schemas.plan import RULE_NAMES

INTEREST = "interest"
WORKQUEUE = "workqueue"
MAX_MSGS = "max_msgs"
MAX_BYTES = "max_bytes"
MAX_MSGS_PER_SUBJECT = "max_msgs_per_subject"
MAX_AGE = "max_age"
MSG_TTL = "msg_ttl"
DELETE = "delete"
PURGE = "purge"
ROLLUP = "rollup"
MESSAGE_EXPIRY = "message_expiry"
MAX_TOPIC_SIZE = "max_topic_size"
DELETE_SEGMENTS = "delete_segments"
DELETE_RETENTION = "delete_retention"
DROP = "drop"

RULES = RULE_NAMES
"""Every rule that can let a message go."""
