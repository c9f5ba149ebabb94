"""Verification of a warehouse: its streams and tables in place, each against its log, its digests and its records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from retention.api.selection import StreamSelection
from retention.context.context import OpenedStream
from retention.core.arguments import checked_class
from retention.core.outcomes import Outcome, Watch, act_sequentially
from retention.engines.select import EngineName, Engines
from retention.views.outcomes import Outcomes

if TYPE_CHECKING:
    from retention.api.table import Table
    from retention.verify.finding import Verification


@checked_class
class LogVerification:
    """The part of a stream or topic that proves that what is stored is what was written."""

    opened: OpenedStream
    engine: EngineName | None

    def verify(
        self, *, sample: str | float | None = None, record: bool = False, archive: bool = False
    ) -> Verification:
        """Verify its files, log and records against each other; only the record of the verification is written.

        Args:
            sample: the share of its files whose content is read, `1%` or 0.01; None: all files.
            record: whether to record the digests of intact files that have none.
            archive: whether to read the copies in the stream's archive, too.

        Raises:
            UsageError: `sample` is not a share.
            RefusedError: the table uses a feature that this release does not handle.
        """
        from retention.verify.run import VerifyOptions, verify_stream

        with Engines(self.engine) as engines:
            options = VerifyOptions.of(sample, records=record, archive=archive)
            return verify_stream(self.opened, engines, options)


@checked_class
class Verifying(StreamSelection):
    """The part of a warehouse that proves that what is stored is what was written."""

    clock: Callable[[], int]
    engine: EngineName | None

    @abstractmethod
    def _known(self, name: str) -> OpenedStream:
        """A stream that the configuration names, or that was written to."""

    @abstractmethod
    def table(self, name: str) -> Table:
        """A table in place that the configuration lists."""

    def verify(
        self,
        names: Iterable[str] | None = None,
        *,
        sample: str | float | None = None,
        record: bool = False,
        archive: bool = False,
        watch: Watch | None = None,
    ) -> list[Outcome[Verification]]:
        """Verify streams and tables; only the record of each verification is written.

        An interrupted verification of a stream is continued: files that it has read are not read again.

        Args:
            names: the streams and tables; None: all.
            sample: the share of each stream's files whose content is read, `1%` or 0.01; None: all files.
            record: whether to record the digests of intact files that have none.
            archive: whether to read the copies in the streams' archives, too.
            watch: receives every outcome as soon as it is available.

        Raises:
            UsageError: there is no such stream or table; or `sample` is not a share.
        """
        from retention.verify.run import VerifyOptions, verify_stream
        from retention.verify.tables import verify_table

        options = VerifyOptions.of(sample, records=record, archive=archive)
        streams, tables = self.chosen_with_tables([] if names is None else list(names))
        with Engines(self.engine) as engines:

            def act(name: str) -> Verification:
                if name in tables:
                    return verify_table(self.table(name).opened)
                return verify_stream(self._known(name), engines, options)

            return Outcomes(act_sequentially([*streams, *tables], act, self.clock, watch))
