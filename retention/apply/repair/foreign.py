"""Repair of a Parquet stream with files of another writer that it cannot adopt: they are moved aside."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from retention.apply.recover import settle_interrupted
from retention.context.context import OpenedStream
from retention.context.maintenance import maintaining
from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.core.spoken_commands import command
from retention.errors import RefusedError
from retention.history.kinds import ForeignMoved, MovedFile
from retention.history.runs import history_of
from retention.stores.lease import lease
from retention.stores.parquet.adopt import aside
from retention.stores.table_format import Adoption, Unfit


@dataclass(frozen=True, repr=False)
class ForeignRepair(Displayed):
    """The files that a stream cannot adopt, and their destination."""

    stream: str
    files: tuple[Unfit, ...]
    """Empty: there is nothing to repair."""
    directory: str | None = None
    """The directory that they were moved to, each at its path; None: nothing was changed."""
    run: str | None = None
    """The run that moved them."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.files)

    def as_json(self) -> JsonObject:
        """The fields as JSON values."""
        return asdict(self)


def find_foreign_files(opened: OpenedStream) -> ForeignRepair:
    """Find the files that the repair would move aside, with the reasons; nothing is changed.

    Raises:
        RefusedError: it is a Delta stream.
        DamagedError: its log cannot be read.
    """
    return ForeignRepair(opened.name, tuple(_adoption(opened).unfit_files()))


def _adoption(opened: OpenedStream) -> Adoption:
    adoption = opened.table_format.adoption(opened.layout)
    if adoption is None:
        repair = command("repair lost", opened.name, "FILE", options="--yes")
        raise RefusedError(
            f"{opened.name}: this stream is a Delta table, in which files of other writers stand in the log; nothing "
            f"was changed; {repair} takes out one that is named"
        )
    return adoption


def repair_foreign_files(opened: OpenedStream) -> ForeignRepair:
    """Move files that the stream cannot adopt to a directory of the engine, unchanged; the move is recorded.

    Raises:
        RefusedError, DamagedError: as `find_foreign_files`.
        BusyError: another run or an append is in progress.
    """
    history, clock = history_of(opened.warehouse, opened.name), opened.clock
    with maintaining(opened), lease(opened.root, "append", clock):
        settle_interrupted(opened, history)
        repair = find_foreign_files(opened)
        if not repair.files:
            return repair
        run = history.name_run(clock())
        directory = aside(opened.layout, run)
        record = ForeignMoved(
            run=run,
            stream=opened.name,
            as_of_ns=clock(),
            removed_messages=0,
            removed_bytes=0,
            directory=directory,
            files=[MovedFile(path=file.path, reason=file.reason) for file in repair.files],
        )
        history.begin(record)
        _adoption(opened).move_aside(run, [file.path for file in repair.files])
        history.finish(record.ended())
    return ForeignRepair(opened.name, repair.files, directory, run)
