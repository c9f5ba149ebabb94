"""Reports, explanations, states and last values that show themselves: as text in a terminal, as HTML in a notebook."""

from __future__ import annotations

from retention.passes.explain import Explanation
from retention.passes.report import Report
from retention.views.display import explanation_text, report_text, state_text
from retention.views.display_html import explanation_html, latest_html, report_html, state_html
from retention.views.latest import Latest, latest_text
from retention.views.state import State


class ShownReport(Report):
    """A report as it is shown."""

    def __repr__(self) -> str:
        return "\n".join(report_text(self))

    def _repr_html_(self) -> str:
        return report_html(self)


class ShownExplanation(Explanation):
    """An explanation as it is shown."""

    def __repr__(self) -> str:
        return "\n".join(explanation_text(self))

    def _repr_html_(self) -> str:
        return explanation_html(self)


class ShownState(State):
    """A state as it is shown."""

    def __repr__(self) -> str:
        return "\n".join(state_text(self))

    def _repr_html_(self) -> str:
        return state_html(self)


class ShownLatest(Latest):
    """The last values as they are shown: the newest."""

    def __repr__(self) -> str:
        return "\n".join(latest_text(self))

    def _repr_html_(self) -> str:
        return latest_html(self)
