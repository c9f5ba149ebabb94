"""Commands on a storage with planned faults, each in its own process: their results, and those of a retry."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

from retention.apply.orphans import orphans
from retention.core.outcomes import exit_code_of, sentence_of
from retention.errors import RefusedError, RetentionError
from retention.plan.planfile import load_plans, save_plans
from retention.storage import parallel
from tests.support import crashes
from tests.support.crashes import AS_OF, SCENARIOS, Scenario
from tests.support.crew import serve
from tests.support.faults import Fault, Kind, Storage


def _apply_saved(folder: Path) -> None:
    """Plan, save, load, and apply the loaded plan."""
    warehouse = crashes.opened_at(folder)
    [planned] = warehouse.plan(as_of=AS_OF)
    if planned.value is None:
        assert planned.error is not None
        raise planned.error
    save_plans(str(folder / "plans/monday"), [planned.value])
    [outcome] = warehouse.apply_plans(load_plans(str(folder / "plans/monday")))
    if outcome.error is not None:
        raise outcome.error


def _repair_returned(folder: Path) -> None:
    """Only repair; the scenario's later acts belong to another program."""
    crashes.opened_at(folder).stream("ORDERS").repair_returned_messages().apply()


def _look(folder: Path) -> list[Any]:
    """The answers of read-only commands."""
    stream = crashes.opened_at(folder).new_stream("ORDERS")
    state = stream.state(AS_OF)
    why = stream.explain(35, AS_OF)
    return [
        [state.messages, state.bytes, state.first_seq, state.last_seq],
        [crashes.digest(stream), stream.plan(AS_OF).plan.plan_id, str(why)],
        [record["run"] for record in stream.history()],
        sorted(orphan.what for orphan in orphans(stream.opened)),
    ]


ACTS: dict[str, tuple[Scenario, Callable[[Path], Any]]] = {
    **{name: (scenario, scenario.act) for name, scenario in SCENARIOS.items()},
    "apply": (SCENARIOS["apply"], crashes.apply),
    "repair-returned": (SCENARIOS["repair-returned"], _repair_returned),
    "plan-file": (SCENARIOS["apply"], _apply_saved),
    "look": (Scenario(crashes.applied, crashes.apply), _look),
}


def carry_out(case: dict[str, Any]) -> None:
    """Execute one case: `do` is prepare, act, or a question afterwards.

    Of the questions, `held` is the content of a stream, `outcome` all that must not differ, and
    `again` the same after a retry.
    """
    folder = Path(case["folder"])
    scenario, act = ACTS[case["scenario"]]
    if case["do"] == "prepare":
        scenario.prepare(folder, case["format"])
        return
    found: Any
    if case["do"] == "act":
        found = failing(folder, act, case)
    else:
        found = {"held": _held(folder, scenario)}
        if case["do"] == "again":
            act(folder)
        if case["do"] != "held":
            found |= crashes.outcome_of(folder, scenario)
    Path(case["result"]).write_text(json.dumps(found), encoding="utf-8")


def _held(folder: Path, scenario: Scenario) -> Any:
    """The content of a stream; the kind of the refusal if it cannot be read."""
    try:
        return crashes.digest(crashes.opened_at(folder).new_stream(scenario.stream))
    except RefusedError as error:
        return told(error)["error"]


def failing(folder: Path, act: Callable[[Path], Any], case: dict[str, Any]) -> dict[str, Any]:
    """Act on a storage that fails by plan; the calls, and how the act ended."""
    plan = tuple(Fault(one[0], one[1], Kind(one[2])) for one in case["plan"])
    storage = Storage(folder, plan, case.get("slow_s", 0.0))
    answer, error = None, None
    with storage.watching(), patch.object(parallel, "ThreadPoolExecutor", _one_after_another):
        try:
            answer = act(folder)
        except Exception as raised:  # any error is examined
            error = raised
    return {
        "answer": answer,
        "calls": [list(vars(call).values()) for call in storage.calls],
        "met": len(storage.met),
        **told(error),
    }


def _one_after_another(_: int) -> ThreadPoolExecutor:
    """A pool without concurrency, because the failing call is identified by its number."""
    return ThreadPoolExecutor(1)


def told(error: Exception | None) -> dict[str, Any]:
    """The sentence and the exit code of a command."""
    if error is None:
        return {"error": None, "sentence": "", "code": 0, "ours": True}
    return {
        "error": type(error).__name__,
        "sentence": sentence_of(error),
        "code": exit_code_of(error),
        "ours": isinstance(error, RetentionError),
    }


def claims(
    sentence: str, phrases: Iterable[str] = ("nothing was changed", "nothing was committed")
) -> bool:
    """Whether a sentence claims that nothing happened."""
    return any(phrase in sentence for phrase in phrases)


def print_tally(tally: Counter[tuple[str, str, str]]) -> None:
    """Print the numbers of failed operations and kinds, and the results of their commands."""
    ended = Counter[str]()
    for (_, _, ending), count in tally.items():
        ended[ending] += count
    ways = {(operation, kind) for operation, kind, _ in tally}
    print(f"\n{tally.total()} faults in {len(ways)} ways: {dict(ended)}")


if __name__ == "__main__":
    serve(carry_out)
