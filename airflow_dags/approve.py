"""The approval question to a person, before a removal that needs one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import Context, TaskInstanceState
from airflow.sdk.exceptions import AirflowFailException

from airflow_dags.engine import Engine
from airflow_dags.files import file_name
from airflow_dags.question import is_shown, question
from airflow_dags.running import say_last, skip_task
from airflow_dags.steps import ASKED, ASKING, STREAM, Counts
from airflow_dags.tasks import OneStream, beside

_WAITING = [
    state.value for state in TaskInstanceState if state.value in ("awaiting_input", "deferred")
]
"""The states of a task that waits for an answer; the first exists since 3.3."""


class ApproveOperator(OneStream, ApprovalOperator):  # type: ignore[misc]
    """Ask a person to approve a plan's removals, if the configuration requires it; otherwise skipped.

    At most one question about a stream is open at a time: a run that finds another's question is
    skipped, and the next run asks again. After "Reject" this task skips no other: each following
    task reports the rejection itself.

    No field is a template, because the question contains the stream's name, which may be any text.
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
            engine: the location of the engine.
            stream: the stream, topic or bucket's stream.
            planned: the plan itself, with its stream, if the group is mapped over plans.
            plan: the id of the planning task; None: `plan` of the same group.
            options: options of ApprovalOperator: `response_timeout`, `assigned_users`, `notifiers`.
        """
        super().__init__(subject="Retention: remove messages?", **options)
        self.engine, self.named, self.planned = engine, stream, planned
        self.plan = plan or beside(self.task_id, "plan")

    def execute(self, context: Context) -> Any:
        """Ask, and defer until the answer.

        Raises:
            AirflowSkipException: no approval is required, or another run is asking already.
            AirflowFailException: Airflow would show the numbers of an earlier plan.
        """
        ti = context["ti"]
        if context["params"].get("dry_run"):
            skip_task(context, "a dry run plans and does nothing else")
        plan = self.plan_of(ti, self.plan)
        if plan is None or not plan["needs_approval"]:
            skip_task(context, "this plan needs no approval")
        asking = self._asking(ti)
        ti.xcom_push(key=ASKING, value=asking)
        if asking is not None:
            skip_task(
                context,
                f"{self.stream}: run {asking} already asks about this stream; answer that question, and the next run "
                "asks again",
            )
        ti.xcom_push(key=STREAM, value=self.stream)
        ti.xcom_push(key=ASKED, value=plan["report"])
        noun = "row" if "rows" in plan else "message"
        count = plan[f"{noun}s"]
        self.subject = (
            f"Retention: remove {count:,} {noun if count == 1 else f'{noun}s'} of {self.stream}?"
        )
        self.body = question(self.engine, self.stream, plan)
        if not is_shown(
            self.body, Path(plan["report"]).with_name(f"{file_name(ti, self.task_id)}.md")
        ):
            self._fail(
                "Airflow would show an earlier question of this run, with other numbers; no question was asked, and "
                f'nothing was removed; start another run with {{"streams": ["{self.stream}"]}} to be asked'
            )
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Return the answer for the following tasks.

        Raises:
            AirflowFailException: the answer is "Reject", and the DAG treats that as a failure.
        """
        answer = HITLOperator.execute_complete(self, context, event)
        person = (answer["responded_by_user"] or {}).get("name") or "a person"
        is_approved = answer["chosen_options"] == [self.APPROVE]
        said = f"{self.stream}: {person} has {'approved' if is_approved else 'rejected'} the plan"
        if self.fail_on_reject and not is_approved:
            raise AirflowFailException(f"{said}; the stream is kept as it is")
        self.log.info("%s", said)
        return answer

    def process_trigger_event_error(self, event: dict[str, Any]) -> None:
        """Fail with one sentence if there was no answer in time.

        Raises:
            AirflowFailException: there was no answer in time, or it could not be read.
        """
        if event.get("error_type") != "timeout":
            super().process_trigger_event_error(event)
        self._fail(
            f"no answer came within {self.response_timeout}; nothing was removed; clear this task to ask again, "
            "or start another run to plan anew"
        )

    def _fail(self, reason: str) -> NoReturn:
        error = AirflowFailException(f"{self.stream}: {reason}")
        say_last(error)
        raise error

    def _asking(self, ti: Any) -> str | None:
        """The run with an open question of this DAG about the same stream; None: there is none."""
        asks = [self.task_id]
        if self.planned is not None:
            # A stream added to the configuration may move others to another batch.
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
    """The map indexes of a task of a run that wait for an answer; -1 if it is not mapped."""
    for name, state in states.items():
        index = name.removeprefix(f"{task_id}_") if name != task_id else "-1"
        if state in _WAITING and index.lstrip("-").isdigit():
            yield int(index)
