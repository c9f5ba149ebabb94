"""Claims on dead files of a stream, written before their deletion so that no process commits one meanwhile."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from retention.core.file_records import is_inside
from retention.errors import DamagedError
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached
from retention.stores.layout import Layout

_SUFFIX = ".json"


class Claims:
    """Reads and writes `_retention/claims/`: one file for each reclaim with claimed files left to delete."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._directory = layout.engine_path("claims")

    def read(self) -> dict[str, frozenset[str]]:
        """The claimed paths of each run.

        Raises:
            DamagedError: a claim cannot be read.
        """
        names = (name for name in files.names(self._directory) if name.endswith(_SUFFIX))
        claims = {name.removesuffix(_SUFFIX): self._paths(name) for name in names}
        return {run: paths for run, paths in claims.items() if paths is not None}

    def claimed(self) -> set[str]:
        """All claimed paths.

        Raises:
            DamagedError: a claim cannot be read.
        """
        return {path for paths in self.read().values() for path in paths}

    def write(self, run: str, paths: Collection[str]) -> None:
        """Write a run's claim; durable when this returns, and in force once a commit counts it."""
        content = with_checksum({"run": run, "paths": sorted(paths)})
        place = files.join(self._directory, run + _SUFFIX)
        files.replace(place, json.dumps(content).encode())
        reached(Step.CLAIM_KEPT)

    def drop(self, runs: Iterable[str]) -> None:
        """Delete claims after all their files are deleted."""
        files.delete(files.join(self._directory, run + _SUFFIX) for run in runs)
        reached(Step.CLAIMS_DROPPED)

    def _paths(self, name: str) -> frozenset[str] | None:
        """The paths in a claim; None if it was dropped a moment ago."""
        place = files.join(self._directory, name)
        content = files.read_bytes(place)
        if content is None:
            return None
        try:
            paths = verified(parse_json(content))["paths"]
            _refuse_outside(paths)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(
                f"{place}: this claim on dead files of stream {self._layout.stream} cannot be read ({error}); nothing "
                "was changed; restore it from a copy, or delete it if no reclaim of the stream is under way"
            ) from error
        return frozenset(paths)


def _refuse_outside(paths: Iterable[str]) -> None:
    if not all(map(is_inside, paths)):
        raise ValueError("it names what is not a data file of the stream")
