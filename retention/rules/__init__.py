"""What may go: pure functions on statistics and Arrow tables, one module a rule, in the server's order.

The order of one pass is that of `STREAM.UPDATE` (docs/semantics/limits.md): head trims first, then the limit per
subject, then expiry. A message that several rules would remove belongs to the first of them.
"""

from __future__ import annotations

from schemas.plan import RULE_NAMES

MAX_MSGS = "max_msgs"
MAX_BYTES = "max_bytes"
MAX_MSGS_PER_SUBJECT = "max_msgs_per_subject"
MAX_AGE = "max_age"
MSG_TTL = "msg_ttl"

RULES = RULE_NAMES
"""Every rule that can let a message go, in the order in which one pass applies them."""
