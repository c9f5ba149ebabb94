"""Clamping of TTLs: one shorter than a delete marker's is raised to it when a message is stored (ADR-43)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.core.headers import ttls, with_ttl
from retention.core.units import SECOND


def clamp_ttls(blocks: pa.ChunkedArray, config: StreamConfig) -> pa.ChunkedArray:
    """Header blocks as the server stores them: a positive TTL below the marker's is raised to its whole seconds.

    Where a subject keeps one message only, its marker replaces it in any case, and its TTL is unchanged.

    Args:
        blocks: valid header blocks, binary; null for none.
        config: of the stream that stores them.
    """
    least = (config.subject_delete_marker_ttl_ns or 0) // SECOND
    if not least or config.max_msgs_per_subject == 1:
        return blocks
    seconds = ttls(blocks)
    short = np.flatnonzero((seconds > 0) & (seconds < least))
    if not len(short):
        return blocks
    raised = with_ttl(blocks.take(pa.array(short)), least).combine_chunks()
    mask = np.zeros(len(blocks), dtype=bool)
    mask[short] = True
    return pa.chunked_array([pc.replace_with_mask(blocks.combine_chunks(), mask, raised)])
