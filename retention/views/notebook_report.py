"""The report of a warehouse as a value that displays and saves itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Self

from retention.core.outcomes import Outcome
from retention.inspect.log_report import Overview
from retention.storage.outputs import open_output
from retention.views.report_markdown import MARKDOWN_FILE, report_markdown
from retention.views.report_page import PAGE_FILE, WarehouseReport, report_page


@dataclass(frozen=True, repr=False)
class ShownWarehouseReport(WarehouseReport):
    """A report of a warehouse."""

    outcomes: Sequence[Outcome[Overview]] = ()
    """The outcome of each stream and table that it asked about."""

    def of_job(self, summary: str, errors: Mapping[str, str]) -> Self:
        """The report as that of a job's run.

        Args:
            summary: the summary of the job.
            errors: the sentences that say why its work failed, by stream or table.
        """

        def failed(each: Overview) -> Overview:
            return replace(each, error=each.error or errors.get(each.name))

        sections = [
            replace(of, report=replace(of.report, overview=failed(of.report.overview)))
            for of in self.sections
        ]
        return replace(
            self,
            summary=summary,
            overviews=sorted(map(failed, self.overviews), key=lambda each: each.urgency),
            sections=sorted(sections, key=lambda of: of.report.overview.urgency),
        )

    @property
    def markdown(self) -> str:
        """Its Markdown."""
        return "".join(f"{line}\n" for line in report_markdown(self))

    def save_html(self, path: str | Path) -> None:
        """Write it as one page, completely or not at all.

        Raises:
            UsageError: another file is there.
            StorageError: it cannot be written.
        """
        with open_output(str(path), PAGE_FILE) as sink:
            for piece in report_page(self):
                sink.write(piece.encode())

    def save_markdown(self, path: str | Path) -> None:
        """Write it as Markdown, completely or not at all.

        Raises:
            UsageError, StorageError: as `save_html`.
        """
        with open_output(str(path), MARKDOWN_FILE) as sink:
            sink.write(self.markdown.encode())

    def _repr_html_(self) -> str:
        whole = escape("".join(report_page(self)))
        return f'<iframe sandbox srcdoc="{whole}" style="width:100%;height:40em;border:0"></iframe>'

    def __repr__(self) -> str:
        return f"{self.headline}. Show it in a notebook, or save_html(…) or save_markdown(…) it"
