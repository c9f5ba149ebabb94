"""Trials of the storage capabilities that commits need; their files are deleted afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import obstore
import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import CommitProperties
from obstore.exceptions import AlreadyExistsError
from obstore.exceptions import BaseError as ObjectStoreError
from obstore.store import S3Store

from retention.storage import files
from retention.storage.parallel import in_threads
from retention.stores.delta import internals

TRIAL = ".retention-trial-"
"""The name prefix of trial directories; one remains only if its trial was killed."""
RIVALS = 3
"""The number of concurrent commits of one version."""
ROUNDS = 6
"""The number of rounds of concurrent commits on an object store if no exact trial is possible."""
_KEY = "put"
_PATIENCE_S = 30.0
_COLUMN = pa.schema([pa.field("tried", pa.int64())])
_MARK = "rival"
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


@contextmanager
def trial_place(directory: str) -> Iterator[str]:
    """Create a trial directory below a directory, and delete it after the block.

    Raises:
        OSError: it cannot be created there.
    """
    place = files.join(directory, f"{TRIAL}{uuid.uuid4().hex}")
    if not files.is_remote(place):
        Path(place).mkdir()
    try:
        yield place
    finally:
        if files.is_remote(place):
            files.delete_directory(place)
        else:
            for inside in (internals.log_directory(place), place):
                _empty(inside)


def write_and_read(place: str) -> int:
    """Create, read back and list a file; return its modification time, milliseconds since the epoch.

    Raises:
        OSError: the storage refuses, or returns something else.
    """
    location, content = files.join(place, "written"), uuid.uuid4().bytes
    files.replace(location, content)
    if files.read_bytes(location) != content or files.names(place) != ["written"]:
        raise OSError(f"{location}: what was written is not what is read back")
    modified = files.stat(location)[1]
    files.delete([location])
    return modified


def links_exclude(place: str) -> bool:
    """Whether the second of two writers that create one file by hard link is refused."""
    location = files.join(place, "entry")
    first, second = (files.create_if_absent(location, content) for content in (b"1", b"2"))
    return first and not second and files.read_bytes(location) == b"1"


def renames_last(place: str) -> bool:
    """Whether a rename and its directory can be made durable."""
    source, target = files.join(place, "from"), files.join(place, "to")
    files.replace(source, b"moved")
    files.move([(source, target)])
    return files.read_bytes(target) == b"moved" and files.length(source) is None


def locks_exclude(place: str) -> bool:
    """Whether a second lock on a file is refused while the first is held."""
    with _descriptor(place) as first, _descriptor(place) as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def commits_exclude(place: str) -> bool:
    """Whether the second of two commits of one version is refused.

    Raises:
        Exception: the store's answer was anything but a refusal.
    """
    if not files.is_remote(place):
        return rivals_exclude(place)
    try:
        return puts_exclude(place)
    except ObjectStoreError:
        # Only deltalake finds some credentials, such as those of a single sign-on.
        return all(rivals_exclude(files.join(place, str(number))) for number in range(ROUNDS))


def puts_exclude(place: str) -> bool:
    """Whether an object store keeps the first of two conditional puts of one key and refuses the second.

    No put looks for the key first, so the store alone decides.

    Raises:
        ObjectStoreError: the store answered something else, or nothing.
    """
    store = S3Store.from_url(
        place, client_options={"allow_http": True}, retry_config={"max_retries": 3}
    )
    answers = [_is_put(store, content) for content in (b"1", b"2")]
    # After a lost response, the retry of the first put meets its own content.
    return not answers[1] and bytes(obstore.get(store, _KEY).bytes()) == b"1"


def _is_put(store: S3Store, content: bytes) -> bool:
    try:
        obstore.put(store, _KEY, content, mode="create")
    except AlreadyExistsError:
        return False
    return True


def rivals_exclude(place: str) -> bool:
    """Whether exactly one of several concurrent Delta commits of one version succeeds, and remains.

    Consecutive commits prove nothing: deltalake looks for the version before it writes. On an object store, one
    commit may by chance look only after another's write, so several rounds are needed.

    Raises:
        Exception: the store's answer was anything but a refusal.
    """
    options = files.storage_options() if files.is_remote(place) else None
    files.replace(internals.entry_place(place, 0), _empty_table())

    def opened(_: int) -> DeltaTable:
        return DeltaTable(place, storage_options=options)

    tables = list(in_threads(opened, range(RIVALS), RIVALS))
    start = threading.Barrier(RIVALS, timeout=_PATIENCE_S)

    def let_through(number: int) -> bool:
        start.wait()
        try:
            _commit(tables[number], number)
        except CommitFailedError:
            return False
        return True

    answers = list(in_threads(let_through, range(RIVALS), RIVALS))
    kept = int(internals.commit_info(internals.read_entry(place, 1) or b"")[_MARK])
    # After a lost response, the winner's own retry looks like a rival.
    return not any(answers) or [n for n, wrote in enumerate(answers) if wrote] == [kept]


def local_abilities() -> dict[str, Callable[[str], bool]]:
    """The capabilities that a local file system must have, by name."""
    return {"hard links": links_exclude, "renames": renames_last, "locks": locks_exclude}


def _empty_table() -> bytes:
    """The first entry of the log of an empty table."""
    column = {"name": "tried", "type": "long", "nullable": True, "metadata": {}}
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [column]}),
        "partitionColumns": [],
        "configuration": {},
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    return b"\n".join(
        json.dumps(action).encode() for action in ({"protocol": protocol}, {"metaData": metadata})
    )


def _commit(table: DeltaTable, number: int) -> None:
    marked = CommitProperties(custom_metadata={_MARK: str(number)}, max_commit_retries=0)
    table.create_write_transaction(
        [],
        "append",
        _COLUMN,
        partition_by=[],
        commit_properties=marked,
        post_commithook_properties=_NO_HOOKS,
    )


@contextmanager
def _descriptor(place: str) -> Iterator[int]:
    descriptor = os.open(files.join(place, "lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _empty(directory: str) -> None:
    if Path(directory).is_dir():
        for entry in Path(directory).iterdir():
            entry.unlink()
        Path(directory).rmdir()
