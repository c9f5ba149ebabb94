"""Errors, classified by the caller's next step; each has the exit code of a command that ends with it."""

from __future__ import annotations

from collections.abc import Sequence

from retention.errors import printable


class RetentionError(Exception):
    """Root of every error that this package raises on purpose; one sentence: what, where, why, what to do.

    Names from data cannot send control characters to a terminal, and locations show no credentials.
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
        """Name the missing key; `operation` is the key's last operation, if that removed its value."""
        at = "" if revision is None else f" at revision {revision}"
        why = {"delete": ": it is deleted", "purge": ": it is purged"}.get(operation or "", "")
        super().__init__(
            f"bucket {bucket} has no value for {key!r}{at}{why}; `retention kv {bucket} keys` lists the keys that have "
            "one"
        )


class ConfigError(UsageError):
    """The configuration was refused: edit the file at the line that the message names."""


class NoConfigError(ConfigError):
    """The configuration file does not exist."""


class RefusedError(RetentionError):
    """A guard refused; nothing was changed, and the message says how to lift the guard."""

    exit_code = 4


class RevisionError(RetentionError):
    """A key has another last revision than expected; nothing was changed, and a retry must read the key first."""

    exit_code = 7

    def __init__(self, bucket: str, key: str, expected: int, actual: int) -> None:
        """Store both revisions; 0: the key has none."""
        super().__init__(self._sentence(bucket, key, expected, actual))
        self.expected = expected
        self.actual = actual

    def _sentence(self, bucket: str, key: str, expected: int, actual: int) -> str:
        stands = f"is at revision {actual}" if actual else "has no revision"
        return (
            f"bucket {bucket}: {key!r} {stands}, and {expected} was expected (wrong last sequence: {actual}, server "
            "error 10071); nothing was changed; get the key, decide again, and expect its revision"
        )


class KeyExistsError(RevisionError):
    """A key to be created already has a value; `actual` is its revision."""

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
    """Deletion vectors of another writer hide rows of files that the engine has to decide about."""

    def __init__(self, message: str, segments: Sequence[tuple[int, int]] = ()) -> None:
        """Store the (partition, segment) of each such file."""
        super().__init__(message)
        self.segments = tuple(segments)


class StreamsFailedError(RetentionError):
    """Some of the requested streams failed; the others are done."""

    exit_code = 5


class VerificationError(RetentionError):
    """Staged files or inputs contradict their expected content; nothing was committed."""

    exit_code = 6


class DamagedError(VerificationError):
    """A file cannot be read as the data file, or record, that its name implies."""


class BusyError(RetentionError):
    """Another process holds the lease, or the table changed: try again."""

    exit_code = 75


class LockLostError(BusyError):
    """Another process has acquired a lock, or may have, before its holder released it."""

    def __init__(self, lock: str, revision: int, why: str) -> None:
        """Name the lock, the revision held, and the reason why it is lost."""
        super().__init__(
            f"{lock} was lost at revision {revision}: {why}; another process may hold it since; check the work done "
            "meanwhile before repeating it"
        )


class StalePlanError(BusyError):
    """The files that a plan pinned have changed: plan again."""


class ConflictError(BusyError):
    """Another commit came first: read the table again, assign again, commit again."""


class StorageError(RetentionError, OSError):
    """The disk or the object store failed; the requested operation may or may not have happened.

    It is also an `OSError`, with the operating system's error number if there is one.
    """

    reason: str = ""
    """The place and cause, without the remedy."""


class ServerError(RetentionError):
    """A message server cannot be reached, did not answer, or answered with an error; nothing was changed there."""


class CancelledError(RetentionError):
    """The work was cancelled while it ran; earlier commits are kept, nothing else was changed."""

    exit_code = 130


class Terminated(SystemExit):
    """The process was ended with SIGTERM, as schedulers do; earlier commits are kept."""

    def __init__(self) -> None:
        super().__init__(143)


class CommitUnknownError(RetentionError):
    """The store did not say whether a commit happened: inspect first, delete nothing."""
