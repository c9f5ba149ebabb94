"""The audit of a warehouse: the run histories of its streams and tables, with all that each run removed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from retention.api.verifying import Verifying
from retention.core.arguments import checked_class
from retention.core.units import format_instant
from retention.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from retention.api.repairs import Instant
    from retention.history.chain import Chain
    from retention.inspect.history_export import Period
    from retention.inspect.run_basis import RunBasis


@checked_class
class Audit(Verifying):
    """The part of a warehouse that accounts for the messages and rows its runs removed, and proves what it keeps."""

    @abstractmethod
    def instant(self, as_of: Instant) -> int:
        """An instant in nanoseconds since the epoch; None: the clock's."""

    def history_export(
        self, names: Iterable[str] | None = None, since: Instant = None, until: Instant = None
    ) -> pa.Table:
        """The runs of streams (all, if `names` is None) with the messages that each removed, as one table.

        Args:
            names: the streams.
            since: only runs that began at that instant or later; None: from the first run on.
            until: only runs that began before it; None: to the last run.

        Returns:
            Rows of the shape `retention.schemas.history_export.HISTORY_EXPORT`: a run, and the messages that it removed
                from one segment by the same rules; streams in order, the oldest run of each first. Later events of a
                run (an undo, a reclaim) are included regardless of `until`.

        Raises:
            UsageError: there is no such stream, or an instant cannot be read.
            DamagedError: a record of a run, or a file of evidence, differs from what was written.
        """
        from retention.inspect.history_export import history_table

        return history_table(list(self.history_tables(names, since, until)))

    def history_tables(
        self, names: Iterable[str] | None = None, since: Instant = None, until: Instant = None
    ) -> Iterator[pa.Table]:
        """The rows of `history_export` in batches, for histories that do not fit into memory.

        Raises:
            UsageError, DamagedError: as `history_export`; the latter also while rows are read.
        """
        from retention.inspect.history_export import exported_runs

        period = self._period(since, until)
        streams = [self._known(name) for name in self._named(names, among=self.streams())]
        return (table for opened in streams for table in exported_runs(opened, period))

    def table_history_export(
        self, names: Iterable[str] | None = None, since: Instant = None, until: Instant = None
    ) -> pa.Table:
        """The runs on tables in place (all, if `names` is None), with the rows that each removed, as one Arrow table.

        Args:
            names: the tables.
            since: as `history_export`.
            until: as `history_export`.

        Returns:
            Rows of the shape `retention.schemas.history_export.TABLE_HISTORY_EXPORT`: a run, and the rows that a limit
                removed from one file; otherwise as `history_export`.

        Raises:
            UsageError, DamagedError: as `history_export`.
        """
        from retention.inspect.table_history_export import table_history

        return table_history(list(self.table_history_tables(names, since, until)))

    def table_history_tables(
        self, names: Iterable[str] | None = None, since: Instant = None, until: Instant = None
    ) -> Iterator[pa.Table]:
        """The rows of `table_history_export` in batches.

        Raises:
            UsageError, DamagedError: as `history_tables`.
        """
        from retention.inspect.table_history_export import exported_table_runs

        period = self._period(since, until)
        tables = [self.table(name).opened for name in (self.tables() if names is None else names)]
        return (runs for opened in tables for runs in exported_table_runs(opened, period))

    def basis_of_run(self, name: str, run: str) -> RunBasis:
        """The records on which the account of a run of a stream or table rests, with their digests.

        Raises:
            UsageError: there is no such stream.
            DamagedError: a record differs from what was written.
        """
        from retention.inspect.run_basis import basis_of, basis_of_table

        if name in self.tables():
            return basis_of_table(self.table(name).opened, run)
        return basis_of(self._known(name), run)

    def chain_of(self, name: str) -> Chain:
        """The chain of the run history of a stream or table: its head, and every contradiction in it.

        Raises:
            UsageError: there is no such stream.
            DamagedError: a record is damaged.
        """
        from retention.inspect.chain import chain_of, chain_of_table

        if name in self.tables():
            return chain_of_table(self.table(name).opened)
        return chain_of(self._known(name))

    def unknown_heads(self, heads: Iterable[str], names: Iterable[str]) -> list[str]:
        """The heads of earlier pages for auditors that none of the histories of streams and tables ever had.

        Raises:
            UsageError: there is no such stream.
            DamagedError: a record is damaged.
        """
        heads = list(heads)
        if not heads:
            return []
        known = frozenset[str]().union(*(self.chain_of(name).heads for name in names))
        return [head for head in heads if head not in known]

    def _period(self, since: Instant, until: Instant) -> Period:
        from retention.inspect.history_export import Period

        since_ns, until_ns = (None if at is None else self.instant(at) for at in (since, until))
        if since_ns is not None and until_ns is not None and since_ns >= until_ns:
            raise UsageError(
                f"the period from {format_instant(since_ns)} to {format_instant(until_ns)} has no length; give an "
                "earlier start, or a later end"
            )
        return Period(since_ns, until_ns)
