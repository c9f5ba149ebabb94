"""The chain of a run history: each run's record names the link of the run before it, so that a rewrite is noticed.

The link of a run is the SHA-256 of its intent. The intent names the link of the previous run, and a digest of all
outcomes since; the run's commit has the link. A rewritten, removed or inserted record contradicts the next link or the
table's counter. Fields that may have to be erased count as salted commitments: erasing a value and its salt leaves
every link as it is (`docs/semantics/storage.md`).
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from retention.history.record import DONE, UNKNOWN, ChainedTo, RunRecord
from retention.storage.checksum import checksum_of

Record = TypeVar("Record", bound=RunRecord)
ERASABLE = ("reason", "request")
"""The fields that may name a person: the reason of a run, and the subject of a purge."""
_SALT_BYTES = 16
_PLAIN_ONLY = (*ERASABLE, "salts", "link")
_COUNTER_BITS = 63
_SAME = (
    "kind",
    "stream",
    "as_of_ns",
    "policy",
    "plan_id",
    "removed_messages",
    "removed_bytes",
    "by_rule",
    "undoes",
    "records",
    "commitments",
)
"""The fields of an intent that the outcome repeats."""


@dataclass(frozen=True)
class ChainedOutcome:
    """A run with an outcome, as the chain counts it."""

    run: str
    digest: str
    """The digest of the record of its outcome."""
    link: str | None = None
    """The link of its intent; None: no release that chains runs recorded it, or it was not done."""


@dataclass(frozen=True)
class StoredRun:
    """The records of a run, as stored; None: there is none."""

    run: str
    intent: Mapping[str, Any] | None
    outcome: Mapping[str, Any] | None


@dataclass(frozen=True)
class Chain:
    """The result of a walk along the chain of a history."""

    findings: tuple[str, ...]
    """A sentence for each contradiction; empty: every link holds."""
    head: str | None
    """The digest of everything recorded so far; None: no run is chained yet."""
    heads: frozenset[str] = field(repr=False, default=frozenset())
    """Every head that the history ever had since its first chained run that is not forgotten."""
    chained: int = 0
    """The runs whose link was recomputed."""
    unchained: tuple[str, ...] = ()
    """Runs of releases that did not chain them, oldest first."""


def digest_of(fields: Mapping[str, Any]) -> str:
    """The digest of a stored record: 64 hexadecimal digits, the same before and after an erasure.

    Args:
        fields: the fields of the file, without its checksum. Values with a salted commitment count by it.
    """
    committed = fields.get("commitments") or {}
    plain = {
        name: value
        for name, value in fields.items()
        if name not in _PLAIN_ONLY or (name in ERASABLE and name not in committed)
    }
    return checksum_of(plain)


def commitment_of(salt: str, value: object) -> str:
    """The salted commitment of a field's value, 64 hexadecimal digits."""
    return checksum_of({"salt": salt, "value": value})


def committed(record: Record) -> Record:
    """The record with a salt and a commitment for each erasable field that is set and has none."""
    known = record.commitments or {}
    salts = {
        name: secrets.token_hex(_SALT_BYTES)
        for name in ERASABLE
        if getattr(record, name, None) is not None and name not in known
    }
    if not salts:
        return record
    fields = record.as_stored()
    made = {name: commitment_of(salt, fields[name]) for name, salt in salts.items()}
    return record.updated(salts={**(record.salts or {}), **salts}, commitments={**known, **made})


def without_values(fields: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The fields of a stored record without some erasable values and their salts; its digest stays the same."""
    salts = {name: salt for name, salt in (fields.get("salts") or {}).items() if name not in names}
    left = {name: value for name, value in fields.items() if name not in {*names, "salts"}}
    return left | ({"salts": salts} if salts else {})


def outcomes_digest(outcomes: Iterable[ChainedOutcome]) -> str:
    """The digest of outcomes, oldest first."""
    return checksum_of({"outcomes": [[outcome.run, outcome.digest] for outcome in outcomes]})


def head_of(chained: ChainedTo) -> str:
    """The digest of everything before a run that is chained like this."""
    return checksum_of({"previous": chained.previous, "outcomes": chained.outcomes})


def next_of(newest_first: Iterable[ChainedOutcome], counter: int | None) -> ChainedTo:
    """The chaining of the next run.

    Args:
        newest_first: the outcomes so far, newest first; read only down to the run before.
        counter: the table's counter of the newest link; None: the table has none, and the newest link counts.
    """
    since: list[ChainedOutcome] = []
    if counter != 0:
        for outcome in newest_first:
            since.append(outcome)
            if outcome.link is not None and counter in (None, counter_of(outcome.link)):
                return ChainedTo(
                    after=outcome.run,
                    previous=outcome.link,
                    outcomes=outcomes_digest(reversed(since)),
                )
    return ChainedTo(outcomes=outcomes_digest(()))


def counter_of(link: str) -> int:
    """The number by which a table's counter stores a link: 63 bits of it.

    >>> counter_of("ff" * 32) == 2**63 - 1
    True
    """
    return int(link[:16], 16) >> (64 - _COUNTER_BITS)


def outcome_of(stored: StoredRun) -> ChainedOutcome | None:
    """The outcome of a run, as the chain counts it; None: it has none."""
    if stored.outcome is None:
        return None
    may_count = stored.outcome.get("status", DONE) in {DONE, UNKNOWN}
    link = stored.outcome.get("link") if may_count else None
    return ChainedOutcome(stored.run, digest_of(stored.outcome), link)


def walk(
    runs: Sequence[StoredRun], forgotten: Sequence[ChainedOutcome], counter: int | None
) -> Chain:
    """Recompute every link of a history, and compare.

    Args:
        runs: the runs with records, oldest first.
        forgotten: the checkpoint of the runs with deleted records, oldest first; a killed deletion leaves some records.
        counter: the table's counter of the newest link; None: the table has none.
    """
    deleted = {outcome.run for outcome in forgotten}
    runs = [run for run in runs if run.run not in deleted]
    remaining = [outcome for run in runs if (outcome := outcome_of(run)) is not None]
    outcomes = sorted([*forgotten, *remaining], key=lambda outcome: outcome.run)
    at = {outcome.run: number for number, outcome in enumerate(outcomes)}
    chained = [run for run in runs if run.outcome is not None and run.outcome.get("link")]
    findings = [
        *(finding for run in runs for finding in _own_findings(run)),
        *(finding for run in chained for finding in _link_findings(run, outcomes, at)),
        *_counter_findings(runs, outcomes, counter),
    ]
    chainings = list(_chainings(outcomes))
    heads = frozenset(head_of(each) for each in chainings if each.previous is not None)
    head = head_of(chainings[-1]) if chainings and chainings[-1].previous else None
    first = next((outcome.run for outcome in outcomes if outcome.link), None)
    unchained = tuple(outcome.run for outcome in remaining if first is None or outcome.run < first)
    return Chain(tuple(findings), head, heads, len(chained), unchained)


def _own_findings(stored: StoredRun) -> Iterator[str]:
    """Contradictions within the records of a run."""
    intent, outcome = stored.intent, stored.outcome
    for record in (intent, outcome):
        yield from _commitment_findings(stored.run, record or {})
    if outcome is None or outcome.get("status", DONE) not in {DONE, UNKNOWN}:
        return
    if intent is None:
        if outcome.get("link") is not None:
            yield f"run {stored.run}: the record of its intent was removed"
    elif intent.get("chain") is not None:
        yield from _outcome_findings(stored.run, intent, outcome)


def _outcome_findings(
    run: str, intent: Mapping[str, Any], outcome: Mapping[str, Any]
) -> Iterator[str]:
    """Contradictions between the intent of a committed run and its outcome."""
    if outcome.get("link") != digest_of(intent):
        yield f"run {run}: the record of its intent is not the one that was committed"
    for name in _SAME:
        if intent.get(name) != outcome.get(name):
            yield f"run {run}: the records of its intent and its outcome differ in {name}"


def _commitment_findings(run: str, record: Mapping[str, Any]) -> Iterator[str]:
    commitments, salts = record.get("commitments") or {}, record.get("salts") or {}
    for name, commitment in commitments.items():
        if name in record and commitment_of(salts.get(name, ""), record[name]) != commitment:
            yield f"run {run}: its {name} is not the one that was recorded"


def _link_findings(
    stored: StoredRun, outcomes: Sequence[ChainedOutcome], at: Mapping[str, int]
) -> Iterator[str]:
    """Contradictions between a run and those before it."""
    chain = ((stored.intent or {}).get("chain")) or {}
    after, number = chain.get("after"), at[stored.run]
    if after is None:
        before = next((each.run for each in outcomes[:number] if each.link), None)
        if before is not None:
            yield (
                f"run {stored.run}: it begins a chain, although run {before} was chained before it: the table was "
                "replaced, or put back to a state before that run"
            )
    elif after not in at:
        yield f"run {stored.run}: the records of run {after}, to which it is chained, were removed"
    elif outcomes[at[after]].link != chain.get("previous"):
        yield f"run {stored.run}: run {after} is not the one to which it was chained"
    elif outcomes_digest(outcomes[at[after] : number]) != chain.get("outcomes"):
        yield f"run {stored.run}: a record from run {after} up to it was changed, added or removed"


def _counter_findings(
    runs: Sequence[StoredRun], outcomes: Sequence[ChainedOutcome], counter: int | None
) -> Iterator[str]:
    """A contradiction between the newest link and the table's counter."""
    newest = next((outcome for outcome in reversed(outcomes) if outcome.link), None)
    if counter is None or (newest is None and counter == 0):
        return
    begun = [digest_of(run.intent) for run in runs if run.outcome is None and run.intent]
    possible = {counter_of(link) for link in begun}
    if newest is not None and newest.link is not None:
        possible.add(counter_of(newest.link))
    if counter not in possible:
        known = next(
            (each.run for each in outcomes if each.link and counter_of(each.link) == counter), None
        )
        last = (
            "no run is recorded as chained" if newest is None else f"the newest run is {newest.run}"
        )
        named = "a run without a record" if known is None else f"run {known}"
        yield f"the table names {named} as its last, and {last}: one of both was put back, or a record was removed"


def _chainings(outcomes: Iterable[ChainedOutcome]) -> Iterator[ChainedTo]:
    """The chaining of a run after each outcome, oldest first."""
    newest: ChainedOutcome | None = None
    since: list[ChainedOutcome] = []
    for outcome in outcomes:
        if outcome.link is not None:
            newest, since = outcome, []
        since.append(outcome)
        if newest is None:
            yield ChainedTo(outcomes=outcomes_digest(()))
        else:
            yield ChainedTo(after=newest.run, previous=newest.link, outcomes=outcomes_digest(since))


def pruned(
    forgotten: Sequence[ChainedOutcome], oldest_remaining: str | None
) -> list[ChainedOutcome]:
    """The checkpoint of forgotten runs, without those that no link needs any more.

    Args:
        forgotten: forgotten runs, oldest first.
        oldest_remaining: the oldest run with records; None: there is none.
    """
    before = [
        number
        for number, outcome in enumerate(forgotten)
        if outcome.link and (oldest_remaining is None or outcome.run < oldest_remaining)
    ]
    return list(forgotten[before[-1] if before else 0 :])
