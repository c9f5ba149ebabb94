from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from retention.storage.crash_points import CRASH_AT, PAUSE_AT, STEPS_LOG, Step

THREE = "from retention.storage.crash_points import Step, reached\nfor _ in range(3): reached(Step.DATA_WRITTEN)"


def started(**environment: str) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[3]
    return subprocess.Popen([sys.executable, "-c", THREE], cwd=root, env=os.environ | environment)


def test_steps_are_passed_when_nothing_is_asked() -> None:
    assert started().wait(60) == 0
    assert started(**{CRASH_AT: Step.HISTORY_DONE}).wait(60) == 0


def test_a_process_kills_itself_where_it_is_asked_to(tmp_path: Path) -> None:
    for point, passed in ((Step.DATA_WRITTEN, 1), (f"{Step.DATA_WRITTEN}#3", 3)):
        log = tmp_path / point
        assert started(**{CRASH_AT: point, STEPS_LOG: str(log)}).wait(60) == -signal.SIGKILL
        assert log.read_text().split() == [Step.DATA_WRITTEN] * passed


def test_a_process_stands_still_where_it_is_asked_to_until_it_is_continued(tmp_path: Path) -> None:
    log = tmp_path / "steps"
    process = started(**{PAUSE_AT: f"{Step.DATA_WRITTEN}#2", STEPS_LOG: str(log)})
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert len(log.read_text().split()) == 2
    process.send_signal(signal.SIGCONT)
    assert process.wait(60) == 0
    assert len(log.read_text().split()) == 3
