"""The link from a task to the page about its streams; Airflow needs no plugin for it."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperatorLink

from airflow_dags.engine import Engine
from airflow_dags.files import has_page, job_report, page_address
from airflow_dags.steps import Step


class PageLink(BaseOperatorLink):  # type: ignore[misc]
    """The page of the last try."""

    name = "Retention report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The address of the page, found by the worker when the task ends; empty: its job wrote none."""
        report = job_report(operator.engine, ti_key, operator.task_id)
        return page_address(operator.engine, report)


def links_of(engine: Engine, step: Step) -> tuple[PageLink, ...]:
    """The links of tasks of a step."""
    return (PageLink(),) if has_page(engine, step.job) else ()
