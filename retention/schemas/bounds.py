"""The largest numbers that a message may have, so that no count or sum of them exceeds 64 bits."""

from __future__ import annotations

MAX_SEQ = 2**62
"""The highest sequence or offset: one message a nanosecond reaches it after 146 years, a clock as sequence in 2116."""
MAX_SIZE = 2**32 - 1
"""The largest `size` of a message: brokers write lengths in 32 bits."""
MAX_TABLE_BYTES = 2**62
"""The largest sum of the sizes of a table's messages."""
