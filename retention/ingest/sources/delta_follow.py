"""A Delta source followed by the versions of its log: which files have new rows, and which commits are ambiguous; pure.

A run takes the rows in the source's newest version that were not taken before. A file that rewrites others (OPTIMIZE,
DELETE) has no rows of its own. If none of their rows were taken, it replaces them; if all were, it is skipped;
otherwise the missing rows are read from the version before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from retention.core.wording import counted
from retention.ingest.sources.directory import NO_WISHES, Wishes

Add = Mapping[str, Any]
"""The fields of an action `add` or `remove`, as in the log."""
ALL_ROWS = 1 << 62
"""Stands for an unknown number of a file's rows that were not taken: possibly all of them."""
_SHRINKING = ("DELETE",)
"""Operations whose new files contain only rows of the files that they remove."""


@dataclass(frozen=True)
class Commit:
    """One version of a Delta log."""

    version: int
    adds: Sequence[Add] = ()
    removes: Sequence[Add] = ()
    operation: str = "a commit"
    program: str = "another program"
    protocol: Mapping[str, object] | None = None
    """The table's protocol from this version on; None: unchanged."""
    metadata: Mapping[str, Any] | None = None
    """The table's id, columns and properties from this version on; None: unchanged."""

    @property
    def text(self) -> str:
        """The version's name in a sentence."""
        return f"version {self.version} ({self.operation} by {self.program})"


@dataclass
class DeltaFiles:
    """The files of a Delta source that are being taken into a stream."""

    pending: dict[str, Add] = field(default_factory=dict)
    """Path → the file as it must be read: none of its rows were taken."""
    taken: dict[str, int] = field(default_factory=dict)
    """Path → the number of the file's rows that were not taken with it, because a deletion vector hid them."""


@dataclass(frozen=True)
class Followed:
    """The outcome of following a log."""

    files: DeltaFiles
    refused: tuple[str, ...] = ()
    """A phrase for each ambiguous version; if there are any, nothing may be taken."""
    notes: tuple[str, ...] = ()
    """A phrase for each notice to the user."""


def follow(files: DeltaFiles, commits: Iterable[Commit], wishes: Wishes = NO_WISHES) -> Followed:
    """Continue from the taken files, over commits in order of their versions.

    Args:
        files: their state before; it is not changed.
        commits: the commits since then.
        wishes: by version: `take` counts the rows of its files as new, `skip` as taken.
    """
    walk = _Walk(DeltaFiles(dict(files.pending), dict(files.taken)), wishes)
    for commit in commits:
        walk.over(commit)
    return Followed(walk.files, tuple(walk.refused), tuple(walk.notes))


def hidden_rows(add: Add) -> int:
    """The number of a file's rows that its deletion vector hides."""
    vector = add.get("deletionVector")
    return int(vector["cardinality"]) if vector else 0


class _Walk:
    """The state between two commits."""

    def __init__(self, files: DeltaFiles, wishes: Wishes) -> None:
        self.files = files
        self.refused: list[str] = []
        self.notes: list[str] = []
        self._wishes = wishes
        self._pinned: set[str] = set()

    def over(self, commit: Commit) -> None:
        """Process one commit."""
        new = []
        for add in commit.adds:
            if add["path"] in self.files.pending:
                self.files.pending[add["path"]] = add
            elif add["path"] in self.files.taken:
                self._meet_again(commit, add)
            else:
                new.append(add)
        added = {add["path"] for add in commit.adds}
        removes = [remove for remove in commit.removes if remove["path"] not in added]
        self._come(commit, new, removes)
        self._leave(commit, removes)

    def _meet_again(self, commit: Commit, add: Add) -> None:
        """Handle a file with taken rows that has a new deletion vector, or was added again."""
        untaken = self.files.taken[add["path"]] - hidden_rows(add)
        if untaken > 0 and str(commit.version) not in self._wishes.skip:
            self._refuse(
                commit,
                f"brings back rows of {add['path']} that were deleted before it was taken",
                f"--skip {commit.version} continues without them",
            )

    def _come(self, commit: Commit, new: Sequence[Add], removes: Sequence[Add]) -> None:
        """Decide about files seen for the first time."""
        loud = [add for add in new if add.get("dataChange", True)]
        self._derive([add for add in new if not add.get("dataChange", True)], removes)
        if not loud:
            return
        if commit.operation in _SHRINKING:
            self._derive(loud, removes, shrunk=True)
        elif not self._is_rewriting(commit) or str(commit.version) in self._wishes.take:
            self.files.pending |= {add["path"]: add for add in loud}
        elif str(commit.version) in self._wishes.skip:
            self._pinned |= {remove["path"] for remove in removes} & self.files.pending.keys()
            self.files.taken |= {add["path"]: hidden_rows(add) for add in loud}
        else:
            self._refuse(
                commit,
                f"rewrites rows that were taken: it is unclear which rows of the {counted(len(loud), 'file')} that "
                "it added are new",
                f"--skip {commit.version} continues without those, --take {commit.version} takes all of them",
            )

    def _is_rewriting(self, commit: Commit) -> bool:
        """Whether files added by a commit may contain rows taken from files that it removes."""
        changed = {remove["path"] for remove in commit.removes if remove.get("dataChange", True)}
        return commit.operation == "RESTORE" or bool(changed & self.files.taken.keys())

    def _derive(self, adds: Sequence[Add], removes: Sequence[Add], *, shrunk: bool = False) -> None:
        """Decide about files that contain only rows of removed ones, per partition where the log gives partitions."""
        are_told = all(remove.get("partitionValues") is not None for remove in removes)
        for partition in dict.fromkeys(map(_partition, adds)):
            group = [add for add in adds if _partition(add) == partition]
            inputs = {
                remove["path"]
                for remove in removes
                if not are_told or _partition(remove) == partition
            }
            untaken = inputs & self.files.pending.keys()
            if untaken and untaken == inputs:
                for path in untaken:
                    hidden = hidden_rows(self.files.pending.pop(path))
                    self.files.taken[path] = ALL_ROWS if shrunk else hidden
                self.files.pending |= {add["path"]: add for add in group}
            else:
                self._pinned |= untaken
                self.files.taken |= {add["path"]: hidden_rows(add) for add in group}

    def _leave(self, commit: Commit, removes: Sequence[Add]) -> None:
        """Forget files that were removed before they were taken."""
        left = {remove["path"] for remove in removes} & self.files.pending.keys() - self._pinned
        for path in left:
            del self.files.pending[path]
        if left:
            self.notes.append(
                f"{commit.text} removed {counted(len(left), 'file')} with rows that were not taken yet; those rows are "
                "not in the stream"
            )

    def _refuse(self, commit: Commit, why: str, remedy: str) -> None:
        self.refused.append(f"{commit.text} {why} ({remedy})")


def _partition(action: Add) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted((action.get("partitionValues") or {}).items()))
