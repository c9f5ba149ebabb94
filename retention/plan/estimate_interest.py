"""Bounds of a pass that begins with a release: decisions from metadata, and limits on the remaining messages."""

from __future__ import annotations

import numpy as np

from retention.core.bounds import Bounds
from retention.core.inventory import Inventory
from retention.core.policy import Policy
from retention.core.spans import Spans
from retention.plan.estimate_bounds import (
    Estimate,
    rewritten,
    segment_bounds,
    size_of,
    whole_only,
)
from retention.plan.estimate_ranges import Range
from retention.rules.acting import acting_limits
from retention.rules.jetstream.interest import Release


def released_bounds(
    inventory: Inventory, policy: Policy, as_of_ns: int, spans: Spans, released: Release
) -> Estimate:
    """Bound the effect of a pass; limits depend on rows here, so they may remove all or nothing.

    Args:
        inventory: the stream.
        policy: its rules.
        as_of_ns: the pass's instant.
        spans: the spans of the stream.
        released: the part of the release by consumers that metadata decides.
    """
    limits = acting_limits(policy)
    by_release = Range(
        np.where(released.whole, spans.messages, 0),
        np.where(released.whole | released.ask, spans.messages, 0),
    )
    possible = Range(by_release.lower, spans.messages if limits else by_release.upper)
    if policy.whole_segments:
        possible = whole_only(inventory, spans, possible)
    goes = possible.lower == spans.messages
    release = Bounds(
        int(by_release.lower[goes].sum()),
        int(np.minimum(by_release.upper, possible.upper).sum()),
    )
    rest = Bounds(0, int(possible.upper[~released.whole].sum()))
    by_rule = {policy.retention: release} | dict.fromkeys(limits, rest)
    lengths = inventory.files["file_bytes"].to_numpy()
    opened = np.repeat(released.ask, np.diff(spans.first_file)).astype(np.int64)
    # Limits may read the same rows again, delete markers once more, and the search for deletions reads them too.
    most = opened + len(
        [
            reason
            for reason in (
                limits,
                policy.subject_delete_marker_ttl_ns,
                policy.delete_retention_ns,
            )
            if reason
        ]
    )
    return Estimate(
        stream=inventory.stream,
        as_of_ns=as_of_ns,
        removed_messages=possible.total(),
        removed_bytes=size_of(spans, possible).total(),
        by_rule={rule: bounds for rule, bounds in by_rule.items() if bounds.upper},
        segments=segment_bounds(spans, possible),
        files_read=Bounds(int(opened.sum()), int(most.sum())),
        bytes_read=Bounds(0, int((most * lengths).sum())),
        bytes_rewritten=rewritten(spans, possible, lengths),
    )
