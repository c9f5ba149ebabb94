"""Values displayed as text in a terminal and HTML in a notebook: reports, explanations, states, messages."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from retention.context.context import OpenedStream
from retention.core.display import DisplayedList
from retention.core.json_object import JsonObject
from retention.core.markup import lines_card
from retention.core.outcomes import Outcome
from retention.core.units import format_instant, parse_as_of
from retention.erasure.report import ErasureReport
from retention.errors import UsageError
from retention.history.compaction_report import CompactionReport
from retention.history.report import RunReport
from retention.inspect.latest import Latest, latest_text
from retention.inspect.state import State
from retention.inspect.topic_messages import TopicMessages, topic_text
from retention.inspect.topic_stats import TopicStats, count_topic, topic_stats
from retention.plan.explanation import Explanation
from retention.plan.simulation import Simulation
from retention.plots.draw import draw
from retention.plots.picture import Picture
from retention.plots.simulation import simulation_chart
from retention.replay.result import Replay
from retention.rules.replay.fates import held_at
from retention.tables.explain import TableExplanation
from retention.views.frames import frame_of, table_of
from retention.views.html import (
    explanation_html,
    latest_html,
    messages_html,
    report_html,
    simulation_html,
    state_html,
    stats_html,
)
from retention.views.table_explanation import table_explanation_text
from retention.views.text import explanation_text, report_text, state_text
from retention.views.text_compaction import compaction_text
from retention.views.text_erase import erasure_text
from retention.views.text_replay import replay_text
from retention.views.text_simulation import simulation_rows, simulation_text
from retention.views.text_topic import stats_text
from retention.views.text_warehouse import warehouse_html, warehouse_text
from retention.views.wording import lines_text

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession


class ShownReport(RunReport):
    """A report that displays itself."""

    def __repr__(self) -> str:
        return lines_text(report_text(self))

    def _repr_html_(self) -> str:
        return report_html(self)


class ShownCompaction(CompactionReport):
    """A report of a compaction that displays itself."""

    def __repr__(self) -> str:
        return lines_text(compaction_text(self))

    def _repr_html_(self) -> str:
        return lines_card(list(compaction_text(self)))


class ShownErasure(ErasureReport):
    """A report of an erasure that displays itself."""

    def __repr__(self) -> str:
        return lines_text(erasure_text(self))

    def _repr_html_(self) -> str:
        return lines_card(list(erasure_text(self)))


class ShownExplanation(Explanation):
    """An explanation that displays itself."""

    def __repr__(self) -> str:
        return lines_text(explanation_text(self))

    def _repr_html_(self) -> str:
        return explanation_html(self)


class ShownState(State):
    """A state that displays itself."""

    def to_pandas(self) -> pd.DataFrame:
        """The numbers of `as_json` in one row, those of a part under its name (`lag.messages`)."""
        return frame_of([self.as_json()])

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The numbers as a Spark DataFrame of one row, with the columns of `to_pandas`; lists are JSON texts."""
        from retention.engines.spark.frames import spark_frame

        return spark_frame(spark, table_of([self.as_json()]))

    def __repr__(self) -> str:
        return lines_text(state_text(self))

    def _repr_html_(self) -> str:
        return state_html(self)


class WarehouseState(DisplayedList[Outcome[Any]]):
    """The states of streams and tables: a list of outcomes with `State` and `TableState`, which converts to frames.

    A stream that cannot be read has its error in its outcome, and in the table.
    """

    def to_pandas(self) -> pd.DataFrame:
        """The numbers, one row for each stream and table; `error` has the sentence of one that cannot be read."""
        return frame_of(self._entries())

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The rows of `to_pandas` as a Spark DataFrame; lists are JSON texts."""
        from retention.engines.spark.frames import spark_frame

        return spark_frame(spark, table_of(self._entries()))

    def _entries(self) -> list[JsonObject]:
        return [
            {"name": each.stream, "error": each.sentence}
            if each.value is None
            else {"name": each.stream} | each.value.as_json()
            for each in self
        ]

    def __repr__(self) -> str:
        return lines_text(warehouse_text(self))

    def _repr_html_(self) -> str:
        return warehouse_html(self)


class ShownSimulation(Simulation):
    """A simulation that displays itself."""

    def to_pandas(self) -> pd.DataFrame:
        """The passes of all policies, one per row: `policy`, `at_ns`, the bounds of numbers (`kept_bytes.lower`)."""
        return frame_of(simulation_rows(self))

    def plot(self) -> Picture:
        """Draw what each policy keeps over its instants.

        Raises:
            UsageError: matplotlib is not installed here.
        """
        return draw(simulation_chart(self))

    def __repr__(self) -> str:
        return lines_text(simulation_text(self))

    def _repr_html_(self) -> str:
        return simulation_html(self)


class ShownReplay(Replay):
    """A replay that displays itself; `fates` is its table, and `states` are those at its instants."""

    def held(self, at: str | int | date | None = None) -> pa.Table:
        """The messages that the server would have held at an instant, until the end of the replay; shape `FATES`.

        Args:
            at: the instant; None: the end. `now` is the end, too.

        Raises:
            UsageError: it is no instant, or later than the end.
        """
        at_ns = self.until_ns if at is None else parse_as_of(at, self.until_ns)
        if at_ns > self.until_ns:
            raise UsageError(
                f"{self.stream}: {at} is after the end of the replay, {format_instant(self.until_ns)}; replay it with "
                "that instant in at"
            )
        return held_at(self.fates, at_ns)

    def to_pandas(self) -> pd.DataFrame:
        """The fates, one row for each publish and delete marker; integers are exact, also where some are missing."""
        import pandas as pd

        exact = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}
        frame: pd.DataFrame = self.fates.to_pandas(types_mapper=exact.get)
        return frame

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The fates as a Spark DataFrame with the columns of `to_pandas`."""
        from retention.engines.spark.frames import spark_frame

        return spark_frame(spark, self.fates)

    def __repr__(self) -> str:
        return lines_text(replay_text(self))

    def _repr_html_(self) -> str:
        return lines_card([*replay_text(self)])


class ShownTableExplanation(TableExplanation):
    """An explanation of rows that displays itself."""

    def __repr__(self) -> str:
        return lines_text(table_explanation_text(self))

    def _repr_html_(self) -> str:
        return lines_card(table_explanation_text(self))


class ShownStats(TopicStats):
    """Statistics of topics that display themselves."""

    def __repr__(self) -> str:
        return lines_text(stats_text(self))

    def _repr_html_(self) -> str:
        return stats_html(self)


class ShownMessages(TopicMessages):
    """Messages of a topic that display themselves."""

    def __repr__(self) -> str:
        return lines_text(topic_text([self.table]))

    def _repr_html_(self) -> str:
        return messages_html(self)


def stats_of(topics: Iterable[OpenedStream]) -> ShownStats:
    """Count topics.

    Raises:
        UsageError, RefusedError, DamagedError: as `count_topic`.
    """
    return ShownStats(**vars(topic_stats(map(count_topic, topics))))


class ShownLatest(Latest):
    """The last values, which display the newest of them."""

    def __repr__(self) -> str:
        return lines_text(latest_text(self))

    def _repr_html_(self) -> str:
        return latest_html(self)
