"""The limit per subject over any number of subjects, their digests made up by the tasks that deal them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.scale.step import Step, expect
from retention.core.neighbours import runs_within
from retention.core.spans import Array
from retention.datafile.subject_digest import SubjectDigest, pack
from retention.engine_port import Part
from retention.engines.select import EngineName, Engines
from retention.inspect.latest import last_seqs
from retention.planners.subject_shuffle import (
    BUCKET_BYTES,
    DEALT,
    DecideBucket,
    Exchange,
    ShuffledExcess,
    buckets_for,
    deal_rows,
)
from retention.storage import scratch_files
from schemas.files import SUBJECT_COUNTS

SUBJECTS, SPANS = 100_000_000, 4_000
MESSAGES = 10
"""Messages of each subject."""
LIMIT = 1
_DIGITS = 12
_FEWEST = 1_000
_SEED = 20_250_106


@dataclass(frozen=True)
class Subjects:
    """Subjects with ten messages each, as many of each subject in each of its spans.

    Subject `i` lies in the spans `i + offset` modulo their number, for some offsets. 8 subjects in 4 spans, with the
    offsets 0 and 1:

        span        0           1           2           3
        subjects    0, 3, 4, 7  0, 1, 4, 5  1, 2, 5, 6  2, 3, 6, 7
    """

    subjects: int
    """A multiple of `spans`."""
    spans: int
    each: int
    """The number of spans in which a subject has messages; ten is a multiple of it."""

    @classmethod
    def of(cls, scale: float, each: int) -> Subjects:
        """That share of the subjects, in fewer spans where they would have few."""
        wanted = int(SUBJECTS * scale)
        spans = min(SPANS, wanted // _FEWEST)
        return cls(wanted - wanted % spans, spans, each)

    @property
    def rows(self) -> int:
        """The number of digests' rows in each span."""
        return self.subjects // self.spans * self.each

    @property
    def row_messages(self) -> int:
        """The number of messages that each row of a digest counts."""
        return MESSAGES // self.each

    @cached_property
    def offsets(self) -> Array:
        """The offsets of a subject's spans."""
        drawn: Array = np.random.default_rng(_SEED).choice(self.spans, self.each, replace=False)
        return drawn

    def numbers(self, span: int) -> Array:
        """The subjects of a span, ascending."""
        lowest = (span - self.offsets) % self.spans
        of_each = np.add.outer(np.arange(0, self.subjects, self.spans), lowest)
        ascending: Array = np.sort(of_each.ravel())
        return ascending

    def digest(self, span: int) -> pa.Table:
        """The digest of a span's one file; shape `DEALT`, sorted by subject."""
        numbers = self.numbers(span)
        digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), _DIGITS, "0")
        first = span * self.rows * self.row_messages
        columns = [
            np.full(self.rows, span),
            pc.binary_join_element_wise("orders.customer.", digits, ""),
            np.full(self.rows, self.row_messages),
            first + self.row_messages * np.arange(1, self.rows + 1),
        ]
        return pa.table(columns, schema=DEALT)

    def beyond(self, span: int) -> Array:
        """The number of messages that the limit takes of each of the span's subjects, in the order of `numbers`."""
        newer = ((np.add.outer(self.numbers(span), self.offsets) % self.spans) > span).sum(axis=1)
        taken: Array = np.clip((newer + 1) * self.row_messages - LIMIT, 0, self.row_messages)
        return taken

    def make(self, place: Path) -> None:
        """Make the directory that takes what goes of each span; digests are never written."""
        (place / "exchange").mkdir()

    def steps(self, place: Path, engine: EngineName) -> Mapping[str, Step]:
        """The exchange of digests; and in this process what `state` does with them, on no engine."""
        directory = place / "exchange"
        exchange = Step(partial(self._exchange, directory, engine), self._check)
        state = Step(self._last_seqs, self._check_last_seqs)
        steps = {"max_msgs_per_subject": exchange}
        return steps | {"num_subjects of state": state} if engine == "local" else steps

    def _last_seqs(self) -> Array:
        store: Any = MadeDigestsStore(self)
        messages = np.full(self.spans, self.rows * self.row_messages)
        return last_seqs(store, pa.table({"span": np.arange(self.spans), "messages": messages}))

    def _check_last_seqs(self, seqs: Array) -> dict[str, Any]:
        expect("subjects", len(seqs), self.subjects)
        return self._size()

    def _exchange(self, directory: Path, engine: EngineName) -> ShuffledExcess:
        length = len(pack(SubjectDigest(self.digest(0).drop_columns(["file"]))))
        lengths = [length] * self.spans
        buckets = buckets_for(sum(lengths))
        tasks = [
            MadeDigests(self, start, end, buckets)
            for start, end in runs_within(lengths, BUCKET_BYTES)
        ]
        decide = DecideBucket(LIMIT, np.arange(self.spans), self.spans)
        with Engines(engine) as engines:
            picked = engines.pick("auto", sum(lengths), 0)
            exchange = Exchange(picked, decide, buckets, str(directory))
            return exchange.excess(deal_made, tasks, [length * len(task) for task in tasks])

    def _check(self, excess: ShuffledExcess) -> dict[str, Any]:
        share = self.subjects // self.spans
        # Subjects that are equal modulo the number of spans fare alike.
        sample = replace(self, subjects=self.spans)
        counted = [share * int(sample.beyond(span).sum()) for span in range(self.spans)]
        expect("messages that go", sum(counted), self.subjects * (MESSAGES - LIMIT))
        expect("messages that go, by span", excess.messages.tolist(), counted)
        for span, place in excess.places.items():
            left = scratch_files.read_table(place)["seq"]
            stays = self.rows * self.row_messages - counted[span]
            expect(f"number of messages that stay of span {span}", len(left), stays)
        for span in (0, 1, self.spans // 2, self.spans - 1):
            if counted[span]:
                self._check_share(span, excess.places[span])
        return self._size()

    def _size(self) -> dict[str, Any]:
        return {"subjects": self.subjects, "spans": self.spans, "rows": self.rows * self.spans}

    def _check_share(self, span: int, place: str) -> None:
        last_seqs = self.digest(span)["last_seq"].to_numpy()
        stays = last_seqs[self.beyond(span) < self.row_messages].tolist()
        left = scratch_files.read_table(place)["seq"].to_pylist()
        expect(f"sequences that stay of span {span}", left, stays)


@dataclass(frozen=True)
class MadeDigestsStore:
    """A reader of the digests of spans, which are made up."""

    shape: Subjects

    def subject_counts(self, spans: pa.Table) -> pa.Table:
        """The digests of the spans with the numbers `span`, as `Store.subject_counts` has them."""
        digests = [self.shape.digest(span) for span in spans["span"].to_pylist()]
        return pa.concat_tables(digests).cast(pa.schema([DEALT.field("file"), *SUBJECT_COUNTS]))


@dataclass(frozen=True)
class MadeDigests:
    """A task: the digests of neighbouring spans, to be made up and dealt into buckets."""

    shape: Subjects
    start: int
    end: int
    buckets: int

    def __len__(self) -> int:
        return self.end - self.start


def deal_made(task: MadeDigests) -> Iterator[Part]:
    """Make the digests of a task up, and deal them as those of files are dealt."""
    digests = pa.concat_tables(task.shape.digest(span) for span in range(task.start, task.end))
    return deal_rows(digests, task.buckets)
