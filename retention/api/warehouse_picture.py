"""The state of a warehouse and its picture: its streams and tables by lag and by size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from retention.api.selection import StreamSelection
from retention.context.context import OpenedStream
from retention.core.arguments import checked_class
from retention.core.display import records_html
from retention.core.outcomes import Outcome, act_concurrently, ask_concurrently
from retention.core.policy import describe
from retention.storage import files

if TYPE_CHECKING:
    from retention.api.repairs import Instant
    from retention.plots.picture import Picture
    from retention.plots.warehouse import Measured
    from retention.tables.state import TableState
    from retention.views.notebook import WarehouseState


@checked_class
class WarehousePicture(StreamSelection):
    """The part of a warehouse that shows and draws it."""

    instant: Callable[[Instant], int]

    @abstractmethod
    def _known(self, name: str) -> OpenedStream:
        """A stream that the configuration names, or that was written to."""

    @abstractmethod
    def table_states(
        self, names: Iterable[str] | None = None, as_of: Instant = None
    ) -> list[Outcome[TableState]]:
        """The contents of tables (all, if `names` is None), and their lag behind their limits."""

    def state(self, names: Iterable[str] | None = None, as_of: Instant = None) -> WarehouseState:
        """The contents of streams and tables (all, if `names` is None), and their lag, all at one instant.

        Returns:
            An outcome each, with a `State` or a `TableState`, streams first; `to_pandas()` makes a data frame of them.

        Raises:
            UsageError: `as_of` is not an instant.
        """
        from retention.inspect.state import state_of
        from retention.views.notebook import ShownState, WarehouseState

        given = None if names is None else list(names)
        instant = self.instant(as_of)
        if given == []:
            return WarehouseState()
        streams, tables = self.chosen_with_tables(given or (), among=self.streams())

        def ask(name: str) -> ShownState:
            return ShownState(**vars(state_of(self._known(name), instant)))

        at_a_time = files.streams_at_once(self.location)
        states = ask_concurrently(streams, ask, self.clock, at_a_time, "reading states of streams")
        return WarehouseState([*states, *self.table_states(tables, instant)])

    def plot(self, as_of: Instant = None) -> Picture:
        """Draw the streams and tables: the time for which each is behind its policy, and its size.

        Raises:
            UsageError: matplotlib is not installed here, or there is no warehouse at this location.
        """
        from retention.plots.draw import draw
        from retention.plots.warehouse import warehouse_chart

        instant = self.instant(as_of)

        def ask(name: str) -> Measured:
            return _stream(self._known(name), instant)

        at_a_time = files.streams_at_once(self.location)
        streams = act_concurrently(self.chosen(), ask, self.clock, at_a_time)
        tables = self.table_states(None, instant)
        measured = [each.value for each in streams if each.value is not None]
        measured += [_table(each.value, instant) for each in tables if each.value is not None]
        return draw(warehouse_chart(measured, len(streams) + len(tables) - len(measured), instant))

    def _repr_html_(self) -> str:
        from retention.config.describe_table import limits_in_words

        listed = {stream.name: stream for stream in self.config.streams}
        streams = [
            {
                "name": name,
                "kind": "topic" if name in listed and listed[name].topic else "stream",
                "policy": describe(listed[name].policy()) if name in listed else "not listed",
            }
            for name in self.streams()
        ]
        tables = [
            {"name": table.name, "kind": "table", "policy": limits_in_words(table)}
            for table in self.config.tables
        ]
        return records_html(self.location, [*streams, *tables])


def _stream(opened: OpenedStream, as_of_ns: int) -> Measured:
    import pyarrow.compute as pc

    from retention.inspect.lag import look
    from retention.plots.warehouse import Measured

    reading = look(opened, as_of_ns)
    size = pc.sum(reading.files["bytes"], min_count=0).as_py()
    return Measured(
        opened.name,
        size,
        None if reading.lag is None else reading.lag.behind_ns(as_of_ns),
        "stream" if opened.config.topic is None else "topic",
    )


def _table(state: TableState, as_of_ns: int) -> Measured:
    from retention.plots.warehouse import Measured

    return Measured(
        state.table,
        state.bytes,
        None if state.due is None else state.behind_ns(as_of_ns),
        "table",
    )
