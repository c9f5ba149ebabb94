"""Losses by file: what spans lose is shared out among their files, and what consumers let go of is added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention.core.policy import Policy
from retention.core.spans import Array, Spans
from retention.plan.remaining import RemainingMessages
from retention.rules import RULES
from schemas.plan import REMOVED_RANGES


@dataclass(frozen=True)
class ByMetadata:
    """Losses of spans that metadata decided, spans of which rows had to be asked left out."""

    spans: Spans
    whole: Array
    """Spans that go whole; a mask."""
    by_rule: Array
    """Messages that each rule takes of each span; shape (spans, rules)."""


@dataclass(frozen=True)
class FileLosses:
    """Losses of each of some files: messages, bytes, messages by rule, and ranges of sequences."""

    messages: Array
    bytes: Array
    by_rule: Array
    """Shape (files, rules)."""
    ranges: pa.Table
    """Shape `REMOVED_RANGES`, `file` being a row number among those files."""

    def only(self, wanted: Array) -> FileLosses:
        """The losses of the files in `wanted`, a mask, nothing of others."""
        return FileLosses(
            messages=np.where(wanted, self.messages, 0),
            bytes=np.where(wanted, self.bytes, 0),
            by_rule=np.where(wanted[:, None], self.by_rule, 0),
            ranges=self.ranges.filter(pa.array(wanted[self.ranges["file"].to_numpy()])),
        )


def file_losses(files: pa.Table, known: ByMetadata, parts: Sequence[pa.Table]) -> FileLosses:
    """Share out among files what spans lose; `parts` have the shape `REMOVED_RANGES`."""
    goes_whole = known.whole[known.spans.span_of_file]
    by_rule = _spread(files, known, np.flatnonzero(goes_whole))
    lost_messages = np.where(goes_whole, files["messages"].to_numpy(), 0)
    lost_bytes = np.where(goes_whole, files["bytes"].to_numpy(), 0)
    ranges = pa.concat_tables([REMOVED_RANGES.empty_table(), *parts])
    at, rules = ranges["file"].to_numpy(), ranges["rule"].to_numpy()
    np.add.at(by_rule, (at, rules), ranges["messages"].to_numpy())
    np.add.at(lost_messages, at, ranges["messages"].to_numpy())
    np.add.at(lost_bytes, at, ranges["bytes"].to_numpy())
    return FileLosses(lost_messages, lost_bytes, by_rule, ranges)


def _spread(files: pa.Table, known: ByMetadata, goes: Array) -> Array:
    """Give the files `goes`, whose spans go whole, their shares of what each rule takes; shape (files, rules).

    A span of files with 4 and 6 messages, of which one rule takes 7 and the next 3:

        files   |0 . . . 4 . . . . . 10|     the first file: 4 and 0
        rules   |0 . . . . . . 7 . . 10|     the second:     3 and 3
    """
    of_file = known.spans.span_of_file[goes]
    rule_ends = np.cumsum(known.by_rule[of_file], axis=1)
    messages = files["messages"].to_numpy()
    file_ends = np.cumsum(messages)[goes]
    before_span = (np.cumsum(known.spans.messages) - known.spans.messages)[of_file]
    ends, messages = (file_ends - before_span)[:, None], messages[goes, None]
    reached = np.minimum(rule_ends, ends) - np.minimum(rule_ends, ends - messages)
    shares = np.zeros((files.num_rows, known.by_rule.shape[1]), dtype=np.int64)
    shares[goes] = np.diff(reached, axis=1, prepend=0)
    return shares


def with_released(left: RemainingMessages, policy: Policy, losses: FileLosses) -> FileLosses:
    """The losses of all files of the inventory, given those of the files of which something is left."""
    stored = left.inventory.files
    if len(left.numbers) == stored.num_rows and not left.released.num_rows:
        return losses
    messages, lost_bytes = (stored[name].to_numpy().copy() for name in ("messages", "bytes"))
    messages[left.numbers] += losses.messages - left.files["messages"].to_numpy()
    lost_bytes[left.numbers] += losses.bytes - left.files["bytes"].to_numpy()
    by_rule = np.zeros((stored.num_rows, len(RULES)), dtype=np.int64)
    by_rule[left.numbers] = losses.by_rule
    by_rule[:, RULES.index(policy.retention)] = messages - by_rule.sum(axis=1)
    numbers = pa.array(left.numbers[losses.ranges["file"].to_numpy()], pa.int64())
    numbered = losses.ranges.set_column(0, REMOVED_RANGES.field("file"), numbers)
    return FileLosses(messages, lost_bytes, by_rule, pa.concat_tables([numbered, left.released]))
