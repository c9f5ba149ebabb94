"""Deliveries of a pull consumer as they came over the wire, decoded into Arrow without an object for each message."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention.errors import VerificationError

MESSAGES = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("headers", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""Stored messages: sequence, subject, time in nanoseconds since the epoch, the exact header block (null: the message
was published without one), payload."""

_H = ord("H")
_DOT = ord(".")
_SPACE = ord(" ")
_LINE_END = 2
_PLAIN_DOTS = 6
"""Dots behind `$JS.ACK.` in `<stream>.<consumer>.<deliveries>.<seq>.<consumer seq>.<ns>.<pending>`."""
_DOMAIN_DOTS = (8, 9)
"""The same with `<domain>.<account hash>.` in front, and with a random token at the end (ADR-15)."""
_SEQ, _CONSUMER_SEQ, _TIME, _PENDING = 3, 4, 5, 6


@dataclass(frozen=True)
class Frames:
    """Whole `MSG` and `HMSG` frames in a buffer; offsets are int64 arrays with an entry a frame."""

    buffer: bytearray
    starts: np.ndarray
    """Begin of the frame."""
    replies: np.ndarray
    """Begin of the reply's part after `$JS.ACK.`."""
    marks: np.ndarray
    """End of the subject."""
    ends: np.ndarray
    """End of the control line."""
    sizes: np.ndarray
    """Bytes of headers and payload together."""


@dataclass(frozen=True)
class Deliveries:
    """Decoded deliveries of one consumer."""

    messages: pa.Table
    """A table of shape `MESSAGES`."""
    consumer_seqs: np.ndarray
    """1, 2, 3 … if no delivery was lost."""
    pending: int
    """Messages that the consumer had after the last of them; 0: that was the stream's last."""


def decode(frames: Frames) -> Deliveries:
    """Decode at least one frame.

    Raises:
        VerificationError: A reply is not a `JSAck` (ADR-15), or a subject is no UTF-8.
    """
    data = np.frombuffer(frames.buffer, np.uint8)
    whole = pa.py_buffer(frames.buffer)
    has_headers = data[frames.starts] == _H
    numbers = _Numbers.of(whole, frames, has_headers)
    header_sizes = numbers.header_sizes()
    subjects = frames.starts + 4 + has_headers
    bodies = frames.ends + _LINE_END
    columns = [
        pa.array(numbers.field(_SEQ)),
        _as_text(_slices(whole, subjects, frames.marks)),
        pa.array(numbers.field(_TIME)),
        _slices(whole, bodies, bodies + header_sizes, has_headers),
        _slices(whole, bodies + header_sizes, bodies + frames.sizes),
    ]
    messages = pa.Table.from_arrays(columns, schema=MESSAGES)
    return Deliveries(messages, numbers.field(_CONSUMER_SEQ), numbers.last(_PENDING))


def pending_after(reply: bytes) -> tuple[int, int]:
    """The sequence and the consumer's pending messages of one delivery, from its reply after `$JS.ACK.`."""
    tokens = reply.split(b".")
    at = _first_token(len(tokens) - 1)
    return int(tokens[at + _SEQ]), int(tokens[at + _PENDING])


@dataclass(frozen=True)
class _Numbers:
    """The replies and sizes of all frames, one text after the other, and where their dots and spaces are."""

    whole: pa.Buffer
    dots: np.ndarray
    """A row a frame."""
    spaces: np.ndarray
    """The first of each frame."""
    has_headers: np.ndarray
    next_spaces: np.ndarray
    """The second of each frame that has headers."""

    @classmethod
    def of(cls, whole: pa.Buffer, frames: Frames, has_headers: np.ndarray) -> _Numbers:
        lengths = frames.ends - frames.replies
        texts = _slices(whole, frames.replies, frames.ends).buffers()[2]
        joined = np.frombuffer(texts, np.uint8)[: lengths.sum()]
        dots, spaces = np.flatnonzero(joined == _DOT), np.flatnonzero(joined == _SPACE)
        count = len(lengths)
        if len(dots) % count or len(spaces) != count + np.count_nonzero(has_headers):
            raise _strange_reply(joined[: lengths[0]])
        firsts = np.arange(count) + np.cumsum(has_headers) - has_headers
        table = dots.reshape(count, -1)
        begins = np.cumsum(lengths) - lengths
        if (table[:, 0] < begins).any() or (table[:, -1] > spaces[firsts]).any():
            raise _strange_reply(joined[: lengths[0]])
        seconds = spaces[firsts[has_headers] + 1]
        return cls(texts, table, spaces[firsts], has_headers, seconds)

    def field(self, number: int) -> np.ndarray:
        """A number of the replies, int64."""
        return self._integers(*self._bounds(number))

    def last(self, number: int) -> int:
        """A number of the last reply."""
        begins, ends = self._bounds(number)
        return int(self._integers(begins[-1:], ends[-1:])[0])

    def _bounds(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        at = _first_token(self.dots.shape[1]) + number
        ends = self.dots[:, at] if at < self.dots.shape[1] else self.spaces
        return self.dots[:, at - 1] + 1, ends

    def header_sizes(self) -> np.ndarray:
        """Bytes of the header block of each frame; 0 without one."""
        sizes = np.zeros(len(self.spaces), np.int64)
        sizes[self.has_headers] = self._integers(
            self.spaces[self.has_headers] + 1, self.next_spaces
        )
        return sizes

    def _integers(self, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        if not len(begins):
            return begins
        texts = _slices(self.whole, begins, ends).cast(pa.string())
        return texts.cast(pa.int64()).to_numpy()


def _first_token(dots: int) -> int:
    """The number of tokens in front of the stream's name."""
    if dots == _PLAIN_DOTS:
        return 0
    if dots in _DOMAIN_DOTS:
        return 2
    raise VerificationError(
        f"a delivery's reply has {dots + 1} tokens after $JS.ACK, where 7, 9 or 10 are known; the server is of a "
        "version that this program does not know: use a newer release of lake-retention"
    )


def _strange_reply(text: np.ndarray) -> VerificationError:
    return VerificationError(
        f"the server's deliveries have replies of different forms, such as {bytes(text)[:80]!r}; nothing was taken "
        "from them: read again, and report it if it stays"
    )


def _slices(
    whole: pa.Buffer, begins: np.ndarray, ends: np.ndarray, valid: np.ndarray | None = None
) -> pa.Array:
    """Slices of a buffer, in its order and apart, as a binary array; null where not `valid`.

    The buffer is seen as slices and the bytes between them by turns, and the slices are taken out of these.
    """
    bounds = np.empty((len(begins), 2), np.int32)
    bounds[:, 0], bounds[:, 1] = begins, ends
    by_turns = pa.Array.from_buffers(
        pa.binary(), bounds.size - 1, [None, pa.py_buffer(bounds), whole]
    )
    mask = None if valid is None else ~valid
    return by_turns.take(pa.array(np.arange(0, bounds.size, 2), mask=mask))


def _as_text(subjects: pa.Array) -> pa.Array:
    try:
        return subjects.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise VerificationError(
            "the stream has a message with a subject that is no UTF-8, which a lake stream cannot hold; delete it on "
            "the server, or leave it out with a mirror that filters subjects"
        ) from error
