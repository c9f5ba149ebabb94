"""Retention rules: pure functions on statistics and Arrow tables, one module per rule, in the server's order.

A pass first releases the messages that no consumer needs (docs/semantics/consumers-release.md). It
then applies limits in the order of `STREAM.UPDATE` (docs/semantics/limits.md): head trims, the
limit per subject, and expiry; subjects beyond a limit and deleted subjects are removed between the
last two (docs/semantics/log-compaction.md). A message that several rules remove is counted for the first of
them. Requested removals (delete, purge, rollup, drop, erase) are not part of a pass. Topics have rules of
their own, and no others; a later pass removes the segments that an operator requested by
`delete_segments` and that were held at the time. A pass that replays (docs/semantics/replay-mode.md) removes by
the rules of a server at each publish, and what that server would have refused or answered as a duplicate.
"""

from __future__ import annotations

from retention.schemas.rule_names import RULE_NAMES

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
MAX_SUBJECTS = "max_subjects"
ERASE = "erase"
REFUSED = "refused"
DUPLICATE = "duplicate"

RULES = RULE_NAMES
"""Every rule that can remove a message."""
