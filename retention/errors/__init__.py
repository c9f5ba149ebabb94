"""Errors, sorted by what the caller may do next; each has the exit code of a command that ends with it."""

from __future__ import annotations

from collections.abc import Sequence

from retention.errors import printable


class RetentionError(Exception):
    """Root of every error this package raises on purpose; one sentence: what, where, why, what to do.

    Names from data in the sentence cannot steer a terminal, and locations in it show no credentials.
    """

    exit_code = 1

    def __str__(self) -> str:
        return printable.sentence(super().__str__())


class UsageError(RetentionError):
    """The command or call was wrong: repeat it, corrected."""

    exit_code = 2


class MissingMessageError(UsageError):
    """No message with that sequence is in the stream."""


class MissingKeyError(UsageError):
    """A bucket has no value for a key."""

    def __init__(
        self, bucket: str, key: str, revision: int | None = None, operation: str | None = None
    ) -> None:
        """Say what is not there: `operation` is what was done to the key last, if that took its value."""
        at = "" if revision is None else f" at revision {revision}"
        why = {"delete": ": it is deleted", "purge": ": it is purged"}.get(operation or "", "")
        super().__init__(
            f"bucket {bucket} has no value for {key!r}{at}{why}; `retention kv {bucket} keys` lists what has one"
        )


class ConfigError(UsageError):
    """The configuration was refused: edit the file at the place the message names."""


class NoConfigError(ConfigError):
    """No file is where the configuration was said to be."""


class RefusedError(RetentionError):
    """A guard refused; nothing was changed, and the message names what would lift the guard."""

    exit_code = 4


class RevisionError(RetentionError):
    """A key has another last revision than was expected; nothing was changed, and trying again needs a look first."""

    exit_code = 7

    def __init__(self, bucket: str, key: str, expected: int, actual: int) -> None:
        """Keep both revisions; 0: the key has none."""
        super().__init__(self._sentence(bucket, key, expected, actual))
        self.expected = expected
        self.actual = actual

    def _sentence(self, bucket: str, key: str, expected: int, actual: int) -> str:
        stands = f"is at revision {actual}" if actual else "has no revision"
        return (
            f"bucket {bucket}: {key!r} {stands}, and {expected} was expected (wrong last sequence: {actual}, server "
            "error 10071); nothing was changed; get the key, decide anew, and expect what it says"
        )


class KeyExistsError(RevisionError):
    """A key that was to be created has a value; `actual` is its revision."""

    def _sentence(self, bucket: str, key: str, expected: int, actual: int) -> str:
        del expected
        return (
            f"bucket {bucket}: {key!r} exists, at revision {actual} (wrong last sequence: {actual}, server error "
            "10071); nothing was changed; update it from that revision, or put"
        )


class ForeignRowsError(RefusedError):
    """Rows that another writer put into the table break the storage rules."""


class ImpossibleNumbersError(ForeignRowsError):
    """Rows that another writer put into the table have sequences or sizes that no message can have."""


class LostCommitError(RefusedError):
    """Another program overwrote a commit of ours in the table's log."""


class HiddenRowsError(RefusedError):
    """Deletion vectors of another writer hide rows of files that the engine would decide upon."""

    def __init__(self, message: str, segments: Sequence[tuple[int, int]] = ()) -> None:
        """Keep the (partition, segment) of each such file."""
        super().__init__(message)
        self.segments = tuple(segments)


class StreamsFailedError(RetentionError):
    """Some of the requested streams failed; the others are done."""

    exit_code = 5


class VerificationError(RetentionError):
    """Staged files or inputs contradict what they must hold; nothing was committed."""

    exit_code = 6


class DamagedError(VerificationError):
    """A file cannot be read as the data file, or record, that its name claims."""


class BusyError(RetentionError):
    """Someone else holds the lease, or the table moved: try again."""

    exit_code = 75


class LockLostError(BusyError):
    """A lock went to somebody else, or may have, before its holder released it."""

    def __init__(self, lock: str, revision: int, why: str) -> None:
        """Say which lock, the revision that was held, and why it is lost."""
        super().__init__(
            f"{lock} was lost at revision {revision}: {why}; another may hold it since; look at what was done "
            "meanwhile before it is done again"
        )


class StalePlanError(BusyError):
    """The files that a plan pinned are no longer what they were: plan again."""


class ConflictError(BusyError):
    """Another commit came first: read the table again, assign again, commit again."""


class StorageError(RetentionError, OSError):
    """The disk or the object store failed; the requested operation may have happened, or not.

    An `OSError`, too, with its number if the operating system gave one.
    """

    reason: str = ""
    """The place and cause, without the remedy."""


class CancelledError(RetentionError):
    """Somebody cancelled the work while it ran; what was committed before stays, nothing else was changed."""

    exit_code = 130


class Terminated(SystemExit):
    """Somebody ended the process with SIGTERM, as schedulers do; what was committed before stays."""

    def __init__(self) -> None:
        super().__init__(143)


class CommitUnknownError(RetentionError):
    """The store did not say whether a commit happened: look first, delete nothing."""
