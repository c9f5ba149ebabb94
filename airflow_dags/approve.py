"""The question to a person, before messages go that nobody may remove unasked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_dags.steps import ASKED, Counts


class ApproveOperator(ApprovalOperator):  # type: ignore[misc]
    """Ask a person whether a plan's messages may go, where the configuration says so; skipped where it does not.

    No field is a template: the question names the stream, and a name is a text, whatever stands in it.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, stream: str, **options: Any) -> None:
        super().__init__(
            subject=f"Retention: may messages of {stream} go?",
            ignore_downstream_trigger_rules=True,
            **options,
        )
        self.stream = stream

    def execute(self, context: Context) -> Any:
        """Ask, and wait for the answer without a process.

        Raises:
            AirflowSkipException: nobody has to be asked.
        """
        if context["params"]["dry_run"]:
            raise AirflowSkipException("a dry run plans and does nothing else")
        plan = context["ti"].xcom_pull(task_ids=f"{self.task_id.rpartition('.')[0]}.plan")
        if plan is None or not plan["needs_approval"]:
            raise AirflowSkipException("nobody has to approve this plan")
        context["ti"].xcom_push(key=ASKED, value=plan["report"])
        self.subject = f"Retention: may {plan['messages']:,} messages of {self.stream} go?"
        self.body = question(self.stream, plan)
        return super().execute(context)

    def process_trigger_event_error(self, event: dict[str, Any]) -> None:
        """Fail with one sentence if nobody has answered in time.

        Raises:
            AirflowFailException: nobody has; or the answer could not be read.
        """
        if event.get("error_type") != "timeout":
            super().process_trigger_event_error(event)
        raise AirflowFailException(
            f"{self.stream}: nobody has answered within {self.response_timeout}; nothing was removed; clear this task "
            "to ask again, or `plan` to plan anew"
        )


def question(stream: str, plan: Counts) -> str:
    """The text in which a person sees what would go, as Markdown."""
    rules = [f"| by `{rule}` | {count:,} |" for rule, count in plan["by_rule"].items()]
    return "\n".join(
        [
            f"{stream}: {plan['needs_approval']}.",
            "",
            "| | |",
            "|---|---|",
            f"| messages | {plan['messages']:,} |",
            *rules,
            f"| bytes | {plan['bytes']:,} |",
            f"| as of (ns) | {plan['as_of_ns']} |",
            f"| report | `{plan['report']}` |",
            "",
            "Approved is what stands here: if more would go when it is applied, nothing goes. Reject, and the stream "
            "stays as it is.",
        ]
    )
