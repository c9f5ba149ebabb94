"""Model of a stream by the definitions of its rules: a dict of messages, and runs with their removals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from retention.config.stream import StreamConfig
from retention.core.policy import Policy
from retention.core.run_names import started_ns
from tests.support.batch_model import PullConsumer
from tests.support.histories.hold_model import HoldModel
from tests.support.histories.stored import NEVER, SECOND, Stored, marker_headers, matches
from tests.support.marked import marked_update
from tests.support.worlds import World, update

UNDONE, GRACE_OVER, THERE_AGAIN = "undone already", "grace is over", "there again"
ERASED, UNSURE = "erased", "grace is over, but legal holds, a lost log or a vector kept some files"
"""Reasons that prevent an undo; the last may."""


@dataclass
class Run:
    """A run that removed messages."""

    name: str
    kind: str
    ended_ns: int
    removed: dict[int, Stored]
    rules: dict[int, str]
    """Sequence → the rule that removed the message."""
    markers: tuple[int, ...] = ()
    """The sequences of its delete markers."""
    bases: dict[int, int] = field(default_factory=dict)
    """Sequence → the segment of the message."""
    undone: bool = False
    lost: bool = False
    """Whether a reclaim has deleted the files with its messages."""
    kept: frozenset[int] | None = None
    """The sequences whose files legal holds kept from a reclaim; None: none has deleted any."""
    erased: bool = False
    """Whether an erasure deleted its files, or it is one."""

    @property
    def by_rule(self) -> dict[str, int]:
        """Rule → the number of messages that it removed."""
        rules = list(self.rules.values())
        return {rule: rules.count(rule) for rule in rules}

    @property
    def removed_bytes(self) -> int:
        """The removed bytes."""
        return sum(message.size for message in self.removed.values())


@dataclass(frozen=True)
class Archived:
    """The copies of one run in the archive."""

    as_of_ns: int
    removed: Mapping[int, Stored]


@dataclass
class Subscriber:
    """A consumer: its filters, and the server's state of its deliveries and acks."""

    filters: tuple[str, ...]
    worker: PullConsumer

    def wants(self, subject: str) -> bool:
        """Whether one of its filters matches; without filters all subjects match."""
        return not self.filters or any(matches(pattern, subject) for pattern in self.filters)

    def needs(self, message: Stored) -> bool:
        """Whether a message matches and is not settled (server: needAck)."""
        worker, seq = self.worker, message.seq
        if not self.wants(message.subject):
            return False
        waits = seq > worker.delivered or seq in worker.pending
        above = seq > worker.floor[1]
        return (above and (waits or worker.policy != "explicit")) or seq in worker.redelivered


@dataclass(frozen=True)
class Pass:
    """The outcome of a pass."""

    rules: dict[int, str]
    """Sequence → the rule that removes the message."""
    markers: tuple[Stored, ...] = ()
    next_seq: int = 0
    """The next sequence after the pass."""
    kept: Mapping[str, int] | None = None
    """Legal hold → the messages that it keeps; None: none is in effect."""


@dataclass
class StreamModel:
    """The messages of a stream, and the fate of former ones."""

    config: StreamConfig
    live: dict[int, Stored] = field(default_factory=dict)
    bases: dict[int, int] = field(default_factory=dict)
    """Sequence → the original segment of a live message."""
    open_base: int | None = None
    next_seq: int = 1
    removed_seq: int = 0
    """The highest sequence ever removed."""
    runs: list[Run] = field(default_factory=list)
    subscribers: dict[str, Subscriber] = field(default_factory=dict)
    ids: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Message id → sequence and time of the last accepted message with it."""
    archived: dict[int, tuple[Stored, int]] = field(default_factory=dict)
    """Sequence → the message and its segment, for all messages of which the archive has a copy."""
    archives: list[Archived] = field(default_factory=list)
    """The copies of each run, the oldest first, without those that a reclaim deleted."""
    forgotten_archives: int = 0
    """The number of runs whose copies reclaims have deleted."""
    holds: HoldModel = field(default_factory=HoldModel)
    erasures: set[str] = field(default_factory=set)
    """The ids of erasures."""
    erased: list[Stored] = field(default_factory=list)
    """The messages of which no file may have a copy."""
    log_since_ns: int = 0
    """The instant since which the log has every entry: an erasure deletes earlier ones of a Delta table."""
    changed_ns: int = 0
    """The instant of the last run that replaced or removed files."""

    @property
    def policy(self) -> Policy:
        """The current rules."""
        return self.config.policy()

    @property
    def messages(self) -> list[Stored]:
        """The messages by sequence."""
        return [self.live[seq] for seq in sorted(self.live)]

    @property
    def bytes(self) -> int:
        """The bytes of all messages."""
        return sum(message.size for message in self.live.values())

    def edges(self, grace_ns: int) -> list[int]:
        """The instants at which something becomes due, ascending: ages, TTLs, deletions, ids, graces."""
        policy, config = self.policy, self.config
        spans = (policy.max_age_ns, policy.delete_retention_ns, config.segment_span_ns)
        stored = [m.ts_ns + span for m in self.live.values() for span in spans if span is not None]
        deadlines = [m.deadline_ns for m in self.live.values() if m.deadline_ns is not None]
        ids = [ts_ns + config.duplicate_window_ns for _, ts_ns in self.ids.values()]
        graces = [run.ended_ns + grace_ns for run in self.runs if not run.lost]
        graces += [one.as_of_ns + config.archive_keep for one in self.archives[:3]]
        return sorted({*stored, *ids, *graces, *(one for one in deadlines if one != NEVER)})

    def judge(self, as_of_ns: int) -> Pass:
        """The removals of one pass: as without legal holds, but for the held messages."""
        judged = self._judge(as_of_ns)
        if not self.holds.in_effect:
            return judged
        going = {seq: rule for seq, rule in judged.rules.items() if not self.is_held(seq)}
        kept = self.holds.kept(self.live[seq] for seq in judged.rules)
        return Pass(self._whole(going), judged.markers, judged.next_seq, kept)

    def is_held(self, seq: int) -> bool:
        """Whether a legal hold covers a live message."""
        return self.holds.cover(self.live[seq])

    def without_held(self, seqs: Iterable[int]) -> set[int]:
        """The live messages among some that no legal hold covers."""
        return {seq for seq in seqs if not self.is_held(seq)}

    def _judge(self, as_of_ns: int) -> Pass:
        """The removals of one pass: first unneeded messages, then limits, then expiry (jetstream.md 0.1)."""
        policy = self.policy
        released = {m.seq: policy.retention for m in self.messages if self._is_released(m)}
        left = tuple(m for m in self.messages if m.seq not in released)
        world = World(((1, tuple(m.to_rules() for m in left)),), 1)
        marker_ttl_ns = policy.subject_delete_marker_ttl_ns
        if marker_ttl_ns is None:
            gone = update(world.messages, policy, as_of_ns)
            return Pass(self._whole(gone) | released, next_seq=self.next_seq)
        headers = marker_headers(marker_ttl_ns // SECOND)
        heading = len(Stored(0, "", 0, headers, b"").block or b"")
        server = marked_update(world, policy, as_of_ns, self.next_seq, heading)
        markers = tuple(
            Stored(m.seq, m.subject, as_of_ns, headers, b"")
            for m in server.left
            if m.seq >= self.next_seq
        )
        stored = {seq: rule for seq, rule in server.gone.items() if seq < self.next_seq}
        return Pass(stored | released, markers, server.next_seq)

    def carry_out(self, name: str, done: Pass, now_ns: int) -> None:
        """Apply the removals of a pass."""
        if done.next_seq > self.next_seq + len(done.markers):
            evicted = set(range(self.next_seq, done.next_seq)) - {m.seq for m in done.markers}
            self.removed_seq = max(self.removed_seq, *evicted)
        markers = tuple(marker.seq for marker in done.markers)
        if done.rules:
            self.remove(name, "retention", done.rules, now_ns, markers)
        for marker in done.markers:
            self.store(marker)
        self.next_seq = max(self.next_seq, done.next_seq)

    def remove(
        self,
        name: str,
        kind: str,
        rules: dict[int, str],
        now_ns: int,
        markers: tuple[int, ...] = (),
    ) -> Run:
        """Remove messages, as a run."""
        removed = {seq: self.live.pop(seq) for seq in rules}
        bases = {seq: self.bases.pop(seq) for seq in rules}
        # Runs at one instant have unique names, a nanosecond after one another.
        ended_ns = self.changed_ns = max(now_ns, started_ns(name, now_ns))
        run = Run(name, kind, ended_ns, removed, dict(rules), markers, bases)
        self.runs.append(run)
        if self.config.archive is not None and kind != "erase":
            self.archived |= {seq: (removed[seq], bases[seq]) for seq in rules}
            self.archives.append(Archived(now_ns, removed))
        self.removed_seq = max(self.removed_seq, *rules)
        return run

    def store(self, message: Stored) -> None:
        """Append a message to its segment."""
        config = self.config
        active = [m for m in self.messages if m.seq >= (self.open_base or 0)]
        if self.open_base is None:
            self.open_base = message.seq
        elif active:
            spans = config.segment_span_ns
            is_late = spans is not None and message.ts_ns - active[0].ts_ns >= spans
            if is_late or sum(m.size for m in active) >= config.segment_size:
                self.open_base = message.seq
        self.live[message.seq] = message
        self.bases[message.seq] = self.open_base

    def why_not_undo(self, run: Run) -> str | None:
        """The reason that prevents the undo of a run; None: it can be undone."""
        if run.undone:
            return UNDONE
        if run.erased:
            return ERASED
        if run.lost:
            return GRACE_OVER
        if run.kept is not None:
            return UNSURE
        return THERE_AGAIN if run.removed.keys() & self.live.keys() else None

    def undo(self, run: Run) -> None:
        """Restore the messages removed by a run, and remove its markers, in any segment."""
        run.undone = True
        self.live |= run.removed
        self.bases |= run.bases
        for marker in run.markers:
            if self.live.pop(marker, None) is not None:
                del self.bases[marker]
                self.removed_seq = max(self.removed_seq, marker)
                self.archived.pop(marker, None)

    def erase_archived(self, gone: set[int]) -> None:
        """Take messages out of the archive."""
        self.archived = {seq: kept for seq, kept in self.archived.items() if seq not in gone}
        self.archives = [
            Archived(each.as_of_ns, {s: m for s, m in each.removed.items() if s not in gone})
            for each in self.archives
        ]

    def restore(self) -> None:
        """Restore missing messages from the archive."""
        for seq, (message, base) in self.archived.items():
            if seq not in self.live:
                self.live[seq], self.bases[seq] = message, base

    def reclaim(self, cutoff_ns: int) -> None:
        """Mark the files of messages removed before an instant as deleted."""
        for run in self.runs:
            if run.lost or run.ended_ns >= cutoff_ns:
                continue
            held = {seq for seq, message in run.removed.items() if self.holds.cover(message)}
            run.kept = frozenset(held if run.kept is None else run.kept & held)
            # A log with lost entries younger than the grace may have named the files again.
            is_log_whole = self.log_since_ns < cutoff_ns
            # A data file stays for the grace of the last run that replaced a vector of it.
            is_renewed = self.config.vectors and self.changed_ns >= cutoff_ns
            run.lost = not (self.holds.in_effect or is_renewed) and is_log_whole

    def kept_dead(self) -> list[Stored]:
        """The removed messages under legal holds, whose files nothing may have deleted."""
        return [
            message
            for run in self.runs
            if not (run.lost or run.undone or run.erased)
            for seq, message in run.removed.items()
            if self.holds.cover(message) and (run.kept is None or seq in run.kept)
        ]

    def purge(self, subject: str | None, seq: int | None, keep: int | None) -> set[int]:
        """The messages selected by a purge (removals.md)."""
        meant = [m.seq for m in self.messages if subject is None or matches(subject, m.subject)]
        if seq is not None:
            meant = [one for one in meant if one < seq]
        if keep is not None:
            meant = meant[: max(0, len(meant) - keep)]
        return set(meant)

    def _is_released(self, message: Stored) -> bool:
        policy = self.policy
        if policy.retention == "limits" or not self.subscribers:
            return False
        wanting = [one for one in self.subscribers.values() if one.wants(message.subject)]
        if not wanting:
            return policy.unmatched == "remove"
        return not any(one.needs(message) for one in wanting)

    def _whole(self, gone: dict[int, str]) -> dict[int, str]:
        """The removals with `whole_segments`: those of sealed segments that lose every message."""
        if not self.policy.whole_segments:
            return gone
        spared = {base for seq, base in self.bases.items() if seq not in gone}
        spared.add(self.open_base or 0)
        return {seq: rule for seq, rule in gone.items() if self.bases[seq] not in spared}
