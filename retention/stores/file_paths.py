"""The paths of data files: names of new ones, and the signs in a name of how its file was written."""

from __future__ import annotations

import re
import uuid

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.record_tables import first_outside
from retention.core.vector_paths import NAME_OF_VECTOR
from retention.errors import VerificationError
from retention.stores.layout import Layout

_KIN = rf"/(?P<kin>[0-9a-f]{{32}})-[0-9a-f]{{32}}\.parquet{NAME_OF_VECTOR}$"
_VERSION_AT = 12
"""The index of a UUID's version among its hex digits."""
_MERGED = "8"
"""The UUID version in names of files that merges wrote: version 8 is for custom formats (RFC 9562)."""
_OF_MERGE = rf"[/-][0-9a-f]{{{_VERSION_AT}}}{_MERGED}[0-9a-f]{{19}}\.parquet{NAME_OF_VECTOR}$"


def new_path(partition: int, segment: int, kin: str | None = None, *, merged: bool = False) -> str:
    """A unique path for a new file of a segment.

    Args:
        partition: the segment's partition.
        segment: the segment's base.
        kin: the shared token of files that are written together, split by deadline.
        merged: whether a merge writes the file, or it replaces one that a merge wrote.
    """
    name = uuid.uuid4().hex
    if merged:
        name = f"{name[:_VERSION_AT]}{_MERGED}{name[_VERSION_AT + 1 :]}"
    family = "" if kin is None else f"{kin}-"
    return f"partition={partition}/segment={segment}/{family}{name}.parquet"


def merged_mask(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A mask of the files that merges wrote, and of their replacements, by their names."""
    return pc.match_substring_regex(paths, _OF_MERGE)


def siblings_of(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The kin token in the name of each file that was written together with others, split by deadline; null without.

    No two files of one kin share a sequence, even if their ranges meet: each row was written to one of them, and a copy
    replaces the file that it copies.
    """
    return pc.struct_field(pc.extract_regex(paths, _KIN), "kin")


def kin_of(path: str) -> str | None:
    """The kin token in the name of a file, as by `siblings_of`; Arrow would compile the pattern for each name."""
    named = re.search(_KIN, path)
    return None if named is None else named["kin"]


def is_merged(path: str) -> bool:
    """Whether a merge wrote a file, or the one that it replaces, by its name."""
    return re.search(_OF_MERGE, path) is not None


def check_inside(layout: Layout, paths: pa.ChunkedArray) -> None:
    """Refuse to open anything outside the table's directory.

    Raises:
        VerificationError: a path leads out of it.
    """
    outside = first_outside(paths)
    if outside is not None:
        raise VerificationError(
            f"stream {layout.stream}: a record names {outside}, outside the table's directory; nothing was "
            "changed; restore the record that it comes from, or plan again"
        )
