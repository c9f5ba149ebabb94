"""Directories that two streams share although their names differ, as the file system shows."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from retention.core.subjects import TABLES, name_of_path, path_name
from retention.errors import RefusedError, UsageError
from retention.storage import files
from retention.storage.errors import as_storage_errors

Mounts = dict[tuple[int, int], list[str]]
"""Device and inode → the streams with a part there."""
_PARTS = ("", "messages", "_retention", "consumers")
"""The parts of a stream's directory that may be mounted, or linked, separately."""


def refuse_shared(warehouse: str, stream: str, links: Sequence[Path]) -> None:
    """Refuse a stream if its directory, or that of its history, is really another stream's.

    Different names may lead to one directory if the file system ignores case, or by symbolic links. Object stores have
    neither.

    Args:
        warehouse: the location of `streams/` and `runs/`.
        stream: its name.
        links: the symbolic links of its directory, as by `links_of`.

    Raises:
        RefusedError: naming both streams, and the directory.
    """
    if "://" in warehouse:
        return
    component = path_name(stream)
    root, runs = (files.join(warehouse, kind, component) for kind in ("streams", "runs"))
    with as_storage_errors(warehouse):
        for directory, owner in (
            (root, _owner_of(root) or _owner_of_links(root, links)),
            (runs, _owner_of(runs)),
        ):
            if owner is not None:
                raise shared(directory, stream, owner)


def mounts(warehouse: str, streams: Iterable[str]) -> Mounts:
    """Find streams with tables, consumers or run histories in one directory of a disk, links excepted."""
    streams_at: Mounts = defaultdict(list)
    with as_storage_errors(warehouse):
        for stream in streams:
            for place in _places(warehouse, stream):
                identity = _identity(place, follow=False)
                if identity is not None:
                    streams_at[identity].append(stream)
    return streams_at


def refuse_mounted(warehouse: str, stream: str, streams_at: Mounts) -> None:
    """Refuse a stream with a part mounted in another one's directory as well: its owner would be unknown.

    Args:
        warehouse: of both streams.
        stream: its name.
        streams_at: the parts of all streams.

    Raises:
        RefusedError: naming both streams, and the directory.
    """
    with as_storage_errors(warehouse):
        for place in _places(warehouse, stream) if streams_at else ():
            for other in streams_at.get(_identity(place) or (0, 0), ()):
                # The owner of a whole directory is in its `format.json`.
                if other != stream and not _is_one_directory(warehouse, stream, other):
                    raise shared(place, stream, other)


def shared(directory: str, stream: str, owner: str) -> RefusedError:
    """The error for a stream with a name that leads to the directory of another one."""
    return RefusedError(
        f"{directory}: stream {stream} would share this directory with stream {owner}, and the rules of one would "
        "remove what the other keeps; nothing was changed; keep one of them in another warehouse, or under a name that "
        f"differs in more than case; if it is one stream that was renamed, say {stream} in its _retention/format.json"
    )


def links_of(root: str) -> list[Path]:
    """The symbolic links among a stream's directories, and their direct entries; none on an object store.

    Raises:
        StorageError: a directory cannot be read.
    """
    if "://" in root:
        return []
    with as_storage_errors(root):
        if not os.path.isdir(root):  # noqa: PTH112  (path objects cost more than the entries)
            return []
        links = [Path(root)] if os.path.islink(root) else []  # noqa: PTH114
        for directory in (root, f"{root}/messages", f"{root}/_retention"):
            with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
                links += [Path(entry.path) for entry in entries if entry.is_symlink()]
    return links


def refuse_any_shared(warehouse: str, streams: Iterable[str]) -> None:
    """Refuse streams if two of them share a directory, or would once they are written to.

    Raises:
        RefusedError: naming two such streams, and the directory.
    """
    for directory, first, second in shared_directories(warehouse, streams):
        raise shared(directory, second, first)


def shared_directories(warehouse: str, streams: Iterable[str]) -> list[tuple[str, str, str]]:
    """Streams that share a directory, or would once they are written to: the directory, and both names."""
    if "://" in warehouse:
        return []
    with as_storage_errors(warehouse):
        return [*_shared(warehouse, list(streams))]


def _shared(warehouse: str, streams: list[str]) -> Iterator[tuple[str, str, str]]:
    first_at: dict[tuple[int, int], str] = {}
    pairs: set[tuple[str, str]] = set()
    alike: dict[str, list[str]] = defaultdict(list)
    for stream in streams:
        root = Path(warehouse, "streams", path_name(stream))
        places = [root / part for part in _PARTS]
        for place in (*places, Path(warehouse, "runs", path_name(stream))):
            identity = _identity(place)
            owner = stream if identity is None else first_at.setdefault(identity, stream)
            if owner != stream and (owner, stream) not in pairs:
                pairs.add((owner, stream))
                yield str(place), owner, stream
        alike[root.name.lower()].append(stream)
    if any(len(names) > 1 for names in alike.values()) and not _tells_case(Path(warehouse)):
        for first, *others in alike.values():
            for other in others:
                if (first, other) not in pairs:
                    yield str(Path(warehouse, "streams", path_name(other))), first, other


def _places(warehouse: str, stream: str) -> list[str]:
    component = path_name(stream)
    root = files.join(warehouse, "streams", component)
    return [f"{root}/messages", f"{root}/consumers", files.join(warehouse, "runs", component)]


def _is_one_directory(warehouse: str, stream: str, other: str) -> bool:
    first, second = (
        _identity(files.join(warehouse, "streams", path_name(name))) for name in (stream, other)
    )
    return first == second


def _owner_of(directory: str) -> str | None:
    """The stream that the directory really belongs to; None: the directory has its own name, or does not exist."""
    if os.path.islink(directory):  # noqa: PTH114  (as in `links_of`)
        return _stream_at(Path(directory).resolve(), Path(directory))
    above, _, name = directory.rpartition("/")
    swapped = name.swapcase()
    identity = None if swapped == name else _identity(f"{above}/{swapped}")
    if identity is None or identity != _identity(directory):
        return None
    names = os.listdir(above)  # noqa: PTH208  (names as they are written there)
    if name in names:
        return None
    return _name(next((other for other in names if other.lower() == name.lower()), ""))


def _owner_of_links(root: str, links: Sequence[Path]) -> str | None:
    """The stream that owns the target of a link in this one's directories."""
    owners = (_stream_at(link.resolve(), Path(root)) for link in links if link != Path(root))
    return next((owner for owner in owners if owner is not None), None)


def _stream_at(target: Path, directory: Path) -> str | None:
    """The stream that has a link's target in its directory or table; None: the link's own stream, or none."""
    above = directory.parent.resolve()
    inside = target.relative_to(above).parts if target.is_relative_to(above) else ()
    if inside[:1] == (TABLES,):
        component = (inside[1:] or ("",))[0].rpartition("-")[0].replace("=", "%")
    else:
        component = (inside or ("",))[0]
    return None if component == directory.name else _name(component)


def _name(component: str) -> str | None:
    try:
        return name_of_path(component)
    except UsageError:
        return None


def _identity(place: str | Path, *, follow: bool = True) -> tuple[int, int] | None:
    """Device and inode; None if nothing is there, or a link that is not to be followed."""
    try:
        status = os.stat(place, follow_symlinks=follow)  # noqa: PTH116  (as in `links_of`)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if stat.S_ISLNK(status.st_mode) else (status.st_dev, status.st_ino)


def _tells_case(place: Path) -> bool:
    """Whether a location is case-sensitive, tested on the nearest directory with a letter in its name."""
    nearest = next(
        (
            p
            for p in (place / "streams", place, *place.parents)
            if p.is_dir() and p.name != p.name.swapcase()
        ),
        None,
    )
    if nearest is None:
        return True
    return _identity(nearest.with_name(nearest.name.swapcase())) != _identity(nearest)
