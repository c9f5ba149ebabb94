"""The question to a person, before messages go that nobody may remove unasked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import Context, TaskInstanceState
from airflow.sdk.exceptions import AirflowFailException

from airflow_dags.engine import Engine
from airflow_dags.question import is_shown, question
from airflow_dags.steps import ASKED, ASKING
from airflow_dags.tasks import beside, say_last, skip_task

_WAITING = [
    state.value for state in TaskInstanceState if state.value in ("awaiting_input", "deferred")
]
"""The states of a task that waits for an answer; 3.3 has the first."""


class ApproveOperator(ApprovalOperator):  # type: ignore[misc]
    """Ask a person whether a plan's messages may go, where the configuration says so; skipped where it does not.

    One question about a stream is open at a time: a run that finds another asking is skipped, and the next asks again.
    After "Reject" no task is skipped from here: each that follows says itself that it was rejected.

    No field is a template: the question names the stream, and a name is a text, whatever stands in it.
    """

    template_fields: Sequence[str] = ()

    def __init__(
        self, *, engine: Engine, stream: str, plan: str | None = None, **options: Any
    ) -> None:
        """Ask about a plan.

        Args:
            engine: where the engine is.
            stream: the stream, topic or bucket's stream.
            plan: the id of the task that has planned; None: `plan` of the same group.
            options: those of ApprovalOperator: `response_timeout`, `assigned_users`, `notifiers`.
        """
        super().__init__(subject=f"Retention: may messages of {stream} go?", **options)
        self.engine, self.stream = engine, stream
        self.plan = plan or beside(self.task_id, "plan")

    def execute(self, context: Context) -> Any:
        """Ask, and wait for the answer without a process.

        Raises:
            AirflowSkipException: nobody has to be asked, or another run asks already.
            AirflowFailException: Airflow would show the numbers of an earlier plan.
        """
        ti = context["ti"]
        if context["params"].get("dry_run"):
            skip_task(context, "a dry run plans and does nothing else")
        plan = ti.xcom_pull(task_ids=self.plan)
        if plan is None or not plan["needs_approval"]:
            skip_task(context, "nobody has to approve this plan")
        asking = self._asking(ti)
        if asking is not None:
            ti.xcom_push(key=ASKING, value=asking)
            skip_task(
                context,
                f"{self.stream}: run {asking} asks about this stream already; answer that, and the next run asks "
                "once more",
            )
        ti.xcom_push(key=ASKED, value=plan["report"])
        self.subject = f"Retention: may {plan['messages']:,} messages of {self.stream} go?"
        self.body = question(self.engine, self.stream, plan)
        if not is_shown(self.body, Path(plan["report"]).with_name(f"{self.task_id}.md")):
            self._fail(
                "this run has asked with other numbers before, which Airflow would show again; nobody was asked, and "
                f'nothing removed; start another run with {{"streams": ["{self.stream}"]}} to be asked'
            )
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Return the answer; tasks that follow look at it.

        Raises:
            AirflowFailException: it is "Reject", and the DAG wants that to be a failure.
        """
        answer = HITLOperator.execute_complete(self, context, event)
        person = (answer["responded_by_user"] or {}).get("name") or "a person"
        is_approved = answer["chosen_options"] == [self.APPROVE]
        said = f"{self.stream}: {person} has {'approved' if is_approved else 'rejected'} the plan"
        if self.fail_on_reject and not is_approved:
            raise AirflowFailException(f"{said}; the stream stays as it is")
        self.log.info("%s", said)
        return answer

    def process_trigger_event_error(self, event: dict[str, Any]) -> None:
        """Fail with one sentence if nobody has answered in time.

        Raises:
            AirflowFailException: nobody has; or the answer could not be read.
        """
        if event.get("error_type") != "timeout":
            super().process_trigger_event_error(event)
        self._fail(
            f"nobody has answered within {self.response_timeout}; nothing was removed; clear this task to ask again, "
            "or start another run to plan anew"
        )

    def _fail(self, reason: str) -> NoReturn:
        error = AirflowFailException(f"{self.stream}: {reason}")
        say_last(error)
        raise error

    def _asking(self, ti: Any) -> str | None:
        """The run in which this very task waits for an answer; None: there is none."""
        of_task = {"dag_id": ti.dag_id, "task_ids": [self.task_id]}
        if not ti.get_ti_count(**of_task, states=_WAITING):
            return None
        by_run = ti.get_task_states(**of_task)
        waiting = (run for run, states in by_run.items() if states.get(self.task_id) in _WAITING)
        return next(waiting, None)
