"""Acks as bytes: the reply subject that names a delivery (`JSAck`, ADR-15) and the body with the verb."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array
from retention.core.token_bytes import TokenBytes
from retention.storage.parallel import in_threads

DELIVERED, ACK, NAK, PROGRESS, TERM, NEXT, UNKNOWN = range(7)
VERBS = ("delivered", "ack", "nak", "progress", "term", "next", "unknown")
"""Verb of a row of an ack log, in the order of the codes above; `unknown` has no effect, as on the server."""
SETTLING = (ACK, TERM, NEXT)

ACKS = pa.schema(
    [
        ("row", pa.int64()),
        ("stream", pa.string()),
        ("consumer", pa.string()),
        ("verb", pa.int8()),
        ("deliveries", pa.int64()),
        ("seq", pa.int64()),
        ("consumer_seq", pa.int64()),
        ("ts_ns", pa.int64()),
    ]
)
"""One row per readable line of an ack log, in its order: its row in the log, the stream and the consumer, its verb (a
code of `VERBS`), the number of the message's deliveries so far, its stream sequence, the consumer sequence of the
delivery, and the message's time in nanoseconds since the epoch (the server puts no other into a reply)."""

_PREFIX = "$JS.ACK."
_PREFIX_TOKENS = 2
_PLAIN_TOKENS = 9
_LEAST_TOKENS_WITH_DOMAIN = 11
_DOMAIN_TOKENS = 2
_NUMBERS = ("deliveries", "seq", "consumer_seq", "ts_ns", "pending")
_LARGEST = str(2**63 - 1)
_AT_ONCE = 1 << 15
"""Rows parsed together: the numbers of a token of each stay in a processor's cache."""
_THREADS = 2


@dataclass(frozen=True)
class Malformed:
    """Replies of an ack log that are not a `JSAck`, for one reason."""

    why: str
    count: int
    example: str


def parse(
    replies: pa.Array | pa.ChunkedArray, bodies: pa.Array | pa.ChunkedArray
) -> tuple[pa.Table, list[Malformed]]:
    """Read an ack log.

    Args:
        replies: the reply subjects of the acks or deliveries, text.
        bodies: the published bodies, bytes without headers; null for a delivery.

    Returns:
        A table of shape `ACKS`, and the replies that cannot be read, by reason.
    """
    parts = list(in_threads(_parse_part, list(_in_parts(replies, bodies)), _THREADS))
    acks = pa.concat_tables([ACKS.empty_table(), *(table for table, _ in parts)])
    return acks, merge_malformed(fault for _, faults in parts for fault in faults)


def verbs(bodies: pa.Array) -> pa.Array:
    """The code of each body's verb, int8 (server: consumer.go processAck); of a null, `DELIVERED`.

    Empty, `+ACK` and `+OK` acknowledge; `-NAK`, `+TERM` and `+NXT` may be followed by anything; `+WPI` stands alone.
    """
    encoded = bodies.cast(pa.binary()).dictionary_encode()
    codes = _codes(encoded.dictionary).take(encoded.indices)
    return pc.fill_null(codes, DELIVERED)


def _codes(bodies: pa.BinaryArray) -> pa.Array:
    meanings = [
        (ACK, pc.is_in(bodies, pa.array([b"", b"+ACK", b"+OK"]))),
        (NEXT, pc.starts_with(bodies, b"+NXT")),
        (NAK, pc.starts_with(bodies, b"-NAK")),
        (PROGRESS, pc.equal(bodies, b"+WPI")),
        (TERM, pc.starts_with(bodies, b"+TERM")),
    ]
    masks = [_mask(mask) for _, mask in meanings]
    codes = np.select(masks, [code for code, _ in meanings], UNKNOWN)
    return pa.array(codes.astype(np.int8))


def merge_malformed(faults: Iterable[Malformed]) -> list[Malformed]:
    """Merge the unreadable replies of several parts of a log by reason; the first example of each is kept."""
    merged: dict[str, Malformed] = {}
    for fault in faults:
        before = merged.get(fault.why, Malformed(fault.why, 0, fault.example))
        merged[fault.why] = Malformed(fault.why, before.count + fault.count, before.example)
    return list(merged.values())


def _in_parts(
    replies: pa.Array | pa.ChunkedArray, bodies: pa.Array | pa.ChunkedArray
) -> Iterator[tuple[int, pa.Array, pa.Array]]:
    log = pa.table({"reply": replies, "body": bodies})
    start = 0
    for batch in log.to_batches(max_chunksize=_AT_ONCE):
        yield start, batch["reply"], batch["body"]
        start += batch.num_rows


def _parse_part(part: tuple[int, pa.Array, pa.Array]) -> tuple[pa.Table, list[Malformed]]:
    start, replies, bodies = part
    replies = replies.cast(pa.string())
    columns = _columns_by_bytes(replies)
    if columns is None:
        return _parse_texts(start, replies, bodies)
    columns |= {"row": np.arange(start, start + len(replies)), "verb": verbs(bodies)}
    return pa.table({name: columns[name] for name in ACKS.names}, schema=ACKS), []


def _columns_by_bytes(replies: pa.StringArray) -> dict[str, pa.Array] | None:
    """The columns that readable replies with the same number of tokens give; None if one differs or is unreadable."""
    tokens = TokenBytes.of(replies, _PREFIX.encode())
    if tokens is None or not _fits(tokens.count + _PREFIX_TOKENS):
        return None
    first = int(_first_token(tokens.count + _PREFIX_TOKENS)) - _PREFIX_TOKENS
    numbers = {name: tokens.numbers(first + place) for place, name in enumerate(_NUMBERS, start=2)}
    if any(column is None for column in numbers.values()):
        return None
    return numbers | {"stream": tokens.texts(first), "consumer": tokens.texts(first + 1)}


def _parse_texts(
    start: int, replies: pa.StringArray, bodies: pa.Array
) -> tuple[pa.Table, list[Malformed]]:
    begins = _mask(pc.starts_with(replies, _PREFIX))
    tokens = pc.split_pattern(replies, ".")
    counts = pc.list_value_length(tokens).fill_null(0).to_numpy()
    fits = _fits(counts)
    rows = np.flatnonzero(begins & fits)
    firsts = np.asarray(tokens.offsets)[rows] + _first_token(counts[rows])
    names = {"stream": firsts, "consumer": firsts + 1}
    columns = {name: tokens.values.take(pa.array(at)) for name, at in names.items()}
    readable = np.ones(len(rows), dtype=bool)
    for place, name in enumerate(_NUMBERS, start=2):
        columns[name], is_number = _numbers(tokens.values.take(pa.array(firsts + place)))
        readable &= is_number
    columns |= {"row": pa.array(rows + start), "verb": verbs(bodies).take(pa.array(rows))}
    acks = pa.table({name: columns[name] for name in ACKS.names}, schema=ACKS)
    faults = _wrong_shapes(replies, begins, np.where(fits, -1, counts))
    if readable.all():
        return acks, faults
    bad_numbers = replies.take(pa.array(rows[~readable]))
    return acks.filter(pa.array(readable)), [*faults, *_fault("numbers", bad_numbers)]


def _fits(counts: Array | int) -> Array:
    """Whether a reply may have so many tokens."""
    return np.equal(counts, _PLAIN_TOKENS) | np.greater_equal(counts, _LEAST_TOKENS_WITH_DOMAIN)


def _first_token(counts: Array | int) -> Array:
    """The place of the stream among so many tokens of a reply."""
    return _PREFIX_TOKENS + np.where(np.equal(counts, _PLAIN_TOKENS), 0, _DOMAIN_TOKENS)


def _numbers(tokens: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Tokens as int64 (0 for a non-number), and the mask of those that are digits within 63 bits."""
    lengths = pc.binary_length(tokens).to_numpy()
    short = lengths < len(_LARGEST)
    fits = short | ((lengths == len(_LARGEST)) & _mask(pc.less_equal(tokens, _LARGEST)))
    is_number = fits & _mask(pc.ascii_is_decimal(tokens))
    return pc.if_else(pa.array(is_number), tokens, "0").cast(pa.int64()), is_number


def _wrong_shapes(replies: pa.Array, begins: np.ndarray, counts: np.ndarray) -> list[Malformed]:
    faults = _fault("prefix", replies.filter(pa.array(~begins)))
    for count in np.unique(counts[begins & (counts >= 0)]):
        faults += _fault(f"{count} tokens", replies.filter(pa.array(begins & (counts == count))))
    return faults


def _fault(kind: str, replies: pa.Array) -> list[Malformed]:
    reasons = {
        "prefix": f"does not begin with {_PREFIX}",
        "numbers": "has no whole numbers within 63 bits in its last five places",
    }
    why = reasons.get(kind, f"has {kind}; a reply has 9, or 11 and more with domain and account")
    return [Malformed(why, len(replies), str(replies[0]))] if len(replies) else []


def _mask(values: pa.Array) -> np.ndarray:
    known: np.ndarray = pc.fill_null(values, False).to_numpy(zero_copy_only=False)  # noqa: FBT003
    return known
