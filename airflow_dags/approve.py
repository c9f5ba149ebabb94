"""The question to a person, before messages go that nobody may remove unasked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import Context, TaskInstanceState
from airflow.sdk.exceptions import AirflowFailException

from airflow_dags.engine import Engine
from airflow_dags.question import is_shown, question
from airflow_dags.running import file_name, say_last, skip_task
from airflow_dags.steps import ASKED, ASKING, STREAM, Counts
from airflow_dags.tasks import OneStream, beside

_WAITING = [
    state.value for state in TaskInstanceState if state.value in ("awaiting_input", "deferred")
]
"""The states of a task that waits for an answer; 3.3 has the first."""


class ApproveOperator(OneStream, ApprovalOperator):  # type: ignore[misc]
    """Ask a person whether a plan's messages may go, where the configuration says so; skipped where it does not.

    One question about a stream is open at a time: a run that finds another asking is skipped, and the next asks again.
    After "Reject" no task is skipped from here: each that follows says itself that it was rejected.

    No field is a template: the question names the stream, and a name is a text, whatever stands in it.
    """

    template_fields: Sequence[str] = ("planned",)

    def __init__(
        self,
        *,
        engine: Engine,
        stream: str = "",
        planned: Counts | None = None,
        plan: str | None = None,
        **options: Any,
    ) -> None:
        """Ask about a plan.

        Args:
            engine: where the engine is.
            stream: the stream, topic or bucket's stream.
            planned: the plan itself, with its stream, where the group is mapped over plans.
            plan: the id of the task that has planned; None: `plan` of the same group.
            options: those of ApprovalOperator: `response_timeout`, `assigned_users`, `notifiers`.
        """
        super().__init__(subject="Retention: may messages go?", **options)
        self.engine, self.named, self.planned = engine, stream, planned
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
        plan = self.plan_of(ti, self.plan)
        if plan is None or not plan["needs_approval"]:
            skip_task(context, "nobody has to approve this plan")
        asking = self._asking(ti)
        ti.xcom_push(key=ASKING, value=asking)
        if asking is not None:
            skip_task(
                context,
                f"{self.stream}: run {asking} asks about this stream already; answer that, and the next run asks "
                "once more",
            )
        ti.xcom_push(key=STREAM, value=self.stream)
        ti.xcom_push(key=ASKED, value=plan["report"])
        self.subject = f"Retention: may {plan['messages']:,} messages of {self.stream} go?"
        self.body = question(self.engine, self.stream, plan)
        if not is_shown(
            self.body, Path(plan["report"]).with_name(f"{file_name(ti, self.task_id)}.md")
        ):
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
        """The run in which a task of this DAG waits for an answer about the same stream; None: there is none."""
        asks = [self.task_id]
        if self.planned is not None:
            # Whoever adds a stream to the configuration may move others to another batch.
            asks = [task for task in self.dag.task_ids if task.rpartition(".")[2] == self.label]
        of_tasks = {"dag_id": ti.dag_id, "task_ids": asks}
        if not ti.get_ti_count(**of_tasks, states=_WAITING):
            return None
        for run, states in ti.get_task_states(**of_tasks).items():
            for task in asks:
                for index in _waiting(task, states):
                    stream = ti.xcom_pull(task_ids=task, key=STREAM, map_indexes=index, run_id=run)
                    if stream == self.stream:
                        return str(run)
        return None


def _waiting(task_id: str, states: Mapping[str, str]) -> Iterator[int]:
    """The indexes at which a task of a run waits for an answer; -1 where it is not mapped."""
    for name, state in states.items():
        index = name.removeprefix(f"{task_id}_") if name != task_id else "-1"
        if state in _WAITING and index.lstrip("-").isdigit():
            yield int(index)
