"""Headers of a server's atomic batches and sources, which a publish must not have: refused with the server's codes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.core import headers
from retention.ingest.validation import Validation

BATCH_ID = "Nats-Batch-Id"
STREAM_SOURCE = "Nats-Stream-Source"


def refuse_batch_ids(screen: Validation, blocks: pa.ChunkedArray, config: StreamConfig) -> None:
    """Refuse messages of a client's atomic batch: every publish is one commit here."""
    named = having(blocks, BATCH_ID)
    if config.allow_atomic:
        reason = (
            f"it has a {BATCH_ID}, and what is published together is one batch here, all of it or none: leave the "
            "header out"
        )
        screen.refuse(named, reason)
    else:
        screen.refuse(named, f"it has a {BATCH_ID}, and allow_atomic is off", 10174)


def refuse_sources(screen: Validation, blocks: pa.ChunkedArray) -> None:
    """Refuse messages that claim to come from another stream: only sources may store that header."""
    screen.refuse(having(blocks, STREAM_SOURCE), f"only sources store a {STREAM_SOURCE}", 10227)


def having(blocks: pa.ChunkedArray, name: str) -> np.ndarray:
    """A mask of the header blocks in which a header has a value."""
    mask = np.zeros(len(blocks), dtype=bool)
    rows, values = headers.first_values(blocks, name)
    if len(rows):
        mask[rows] = pc.greater(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    return mask
