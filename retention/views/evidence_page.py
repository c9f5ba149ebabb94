"""An exported run history as a page for auditors: each run with its policy, ranges, later events, and digests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from retention.core.units import format_instant, format_size
from retention.history.chain import Chain
from retention.inspect.run_basis import RunBasis
from retention.views.history_export import cell, losses_of, rows_of, run_of
from retention.views.page import Html, code, items, muted, name, page, table, text
from retention.views.text_hold import by_whom, end_of, scope_of

if TYPE_CHECKING:
    from retention.stores.holds import Hold

KIND = "retention evidence"
_TITLE = "Evidence of removals"
_AMOUNTS = ("files", "messages", "bytes", "file_bytes", "rows", "keys")
"""The columns of losses that are amounts."""
_SHOWN_ALONE = ("reasons", "evidence")
_EVIDENCE = {
    "messages": "which messages it removed is recorded",
    "files": "which files lost how much is recorded, not which messages or rows",
    "keys": "the keys and times of the removed rows are recorded",
    "hashed": "the hashed keys and the times of the removed rows are recorded",
    "deleted": "it removed some; which ones is no longer recorded",
    "none": "it removed none",
}


@dataclass(frozen=True)
class EvidenceBasis:
    """Everything that the accounts of a page rest on."""

    records: Callable[[str, str], RunBasis]
    """Gives the records of a run of a stream or table."""
    chain: Callable[[str], Chain]
    """Gives the chain of the history of a stream or table."""
    digest: str
    """SHA-256 of the same runs as JSON, in hexadecimal."""
    holds: Sequence[Hold] = ()
    """The legal holds of the period."""
    key: str | None = None
    """The fingerprint of the key that signs the page; None: it is not signed."""


def evidence_page(
    tables: Iterable[pa.Table],
    period: Mapping[str, str | None],
    names: Sequence[str],
    basis: EvidenceBasis,
) -> Iterator[str]:
    """The page in pieces.

    Args:
        tables: shapes `HISTORY_EXPORT` and `TABLE_HISTORY_EXPORT`; the rows of a run are adjacent.
        period: `from` and `to` as RFC 3339; None: no such limit.
        names: the streams and tables of the page.
        basis: what the page rests on.
    """
    yield from page(KIND, _TITLE, _body(tables, period, names, basis))


def _body(
    tables: Iterable[pa.Table],
    period: Mapping[str, str | None],
    names: Sequence[str],
    basis: EvidenceBasis,
) -> Iterator[str]:
    yield f"<h1>{_TITLE}</h1>\n"
    yield muted(f"Runs that began {_period(period)}, by stream or table, the oldest first.")
    yield f"<p>SHA-256 of the same runs by {code('retention history export --format json')}: {code(basis.digest)}</p>\n"
    yield muted(
        "The digests of records are those that sha256sum prints. A later run that undoes a run, or deletes its files, "
        "changes its account, and not its own records."
    )
    is_empty = True
    for (subject, run), rows in groupby(rows_of(tables), key=_subject_and_run):
        is_empty = False
        yield from _run(rows, basis.records(subject, run))
    if is_empty:
        yield muted("No run began in this period.")
    yield from _legal_holds(basis.holds)
    yield from _heads({each: basis.chain(each) for each in names})
    if basis.key is not None:
        by = f"Signed (Ed25519) by the key {code(basis.key)}"
        yield f"<p>{by}; the signature is the file of the same name with .sig.</p>\n"


def _legal_holds(holds: Sequence[Hold]) -> Iterator[str]:
    """The section with the legal holds of the period: who placed each, and how it ended."""
    yield "<h2>Legal holds</h2>\n"
    if not holds:
        yield muted("None was in effect in this period.")
        return
    yield from table(
        ("History", "Hold", "Covers", "Placed", "By", "Owner", "Reason", "End"),
        (
            (
                name(hold.stream),
                code(hold.id),
                scope_of(hold),
                format_instant(hold.at_ns),
                by_whom(hold.initiator),
                hold.owner or "",
                hold.reason,
                end_of(hold),
            )
            for hold in holds
        ),
    )


def _heads(chains: Mapping[str, Chain]) -> Iterator[str]:
    """The section with the heads of histories, by which a later page can show that nothing was rewritten."""
    yield "<h2>Heads of the histories</h2>\n"
    yield muted(
        "Each run's record names the run before it, and its commit names the record. The head is the digest of all "
        "records up to now. As long as no record is changed, removed or inserted, "
        "`retention verify --head HEAD` finds it among the heads that the history had."
    )
    for each, chain_ in chains.items():
        yield items([f"{each}: {finding}" for finding in chain_.findings])
    yield from table(
        ("History", "Runs in the chain", "Contradictions", "Head"),
        (_head(each, chain_) for each, chain_ in chains.items()),
        {"Runs in the chain", "Contradictions"},
    )


def _head(subject: str, chain_: Chain) -> tuple[str, str, str, str]:
    head = "no run is in the chain yet" if chain_.head is None else code(chain_.head)
    return name(subject), f"{chain_.chained:,}", f"{len(chain_.findings):,}", head


def _period(period: Mapping[str, str | None]) -> str:
    since, until = period["from"], period["to"]
    bounds = [f"at {since} or later"] if since else []
    bounds += [f"before {until}"] if until else []
    return " and ".join(bounds) or "at any time"


def _subject_and_run(row: Mapping[str, Any]) -> tuple[str, str]:
    (_, subject), run = run_of(row)
    return subject, run


def _run(rows: Iterator[dict[str, Any]], basis: RunBasis) -> Iterator[str]:
    """The section of one run."""
    first = next(rows)
    kind, subject = next(iter(first.items()))
    columns = losses_of(kind)
    yield f"<h2>{name(subject)}: {text(first['kind'])} {code(first['run'])}</h2>\n"
    facts = {
        column: value
        for column, value in first.items()
        if column not in (*columns, kind, "run", "kind", *_SHOWN_ALONE) and value not in (None, 0)
    }
    yield items(first["reasons"])
    yield from table(("Fact", "Value"), (_fact(*fact) for fact in facts.items()))
    if first["evidence"] is not None:
        yield muted(f"Evidence: {_EVIDENCE.get(first['evidence'], first['evidence'])}.")
    losses = (
        row for row in chain([first], rows) if any(row[column] is not None for column in columns)
    )
    head = next(losses, None)
    if head is not None:
        names = [column.replace("_", " ") for column in columns]
        right = {column.replace("_", " ") for column in _AMOUNTS}
        yield "<h3>Removed</h3>\n"
        yield from table(names, (_loss(row, columns) for row in chain([head], losses)), right)
    if basis.policy is not None:
        yield f"<h3>Policy at that time</h3>\n<p>{code(json.dumps(basis.policy, sort_keys=True))}</p>\n"
    yield "<h3>Records</h3>\n"
    yield from table(
        ("Record", "SHA-256"), ((each.location, code(each.sha256)) for each in basis.files)
    )


def _fact(column: str, value: Any) -> tuple[str, str]:
    words = column.replace("_", " ")
    if column.endswith("bytes"):
        size = format_size(value)
        return words, size if size == f"{value} B" else f"{value:,} ({size})"
    return words, f"{value:,}" if isinstance(value, int) and column != "process" else str(value)


def _loss(row: Mapping[str, Any], columns: Iterable[str]) -> list[str]:
    return [_loss_cell(column, row[column]) for column in columns]


def _loss_cell(column: str, value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}" if column in _AMOUNTS else str(value)
    if column in {"rule", "rules"} and value is not None:
        rules = [value] if isinstance(value, str) else value
        return Html("<br>".join(f'<span class="once">{text(rule)}</span>' for rule in rules))
    return cell(column, value)
