"""Execution of the commands in documentation pages, and comparison with the printed output."""

from __future__ import annotations

import io
import os
import re
import runpy
import shlex
import socket
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

from retention.cli.app import options_first
from tests.support.command_line import invoke
from tests.support.jobs import run_job

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`([\w.-]+)`[^`\n]*:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OMITTED = "…\n"
"""A line of a page for any further output."""
RUN = re.compile(r"\d{8}T\d{6}\.\d{9}Z-[0-9a-f]{6}")
_VARYING = (
    (RUN, "RUN"),
    (re.compile(r"\d+\.\d+ s\b"), "0.0 s"),
    (re.compile(r"(wrote \d+\.\d)\d KiB"), r"\1_ KiB"),
    (re.compile(r"[0-9a-f]{64}-[0-9a-f]{16}\.json"), "MANIFEST.json"),
    (re.compile(r"[0-9a-f]{32}\.parquet"), "FILE.parquet"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "TABLE"),
    (re.compile(r"\(build [^)]+\)"), "(build BUILD)"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "INSTANT"),
)
_ENDS_WITH = re.compile(r"\s+# ends with (\d+)$")


def blocks(text: str, kind: str) -> list[str]:
    """The contents of a page's blocks of one language."""
    return [content for language, content in BLOCK.findall(text) if language == kind]


def write_files(text: str, folder: Path) -> None:
    """Write the files of a page: each block after a line that begins with a name in code and ends with a colon."""
    for name, content in FILE.findall(text):
        (folder / name).write_text(content, encoding="utf-8")


def sessions(text: str) -> Iterator[tuple[str, str]]:
    """Every command of a page, with its expected output."""
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def tidy(text: str) -> str:
    """Output without trailing blanks."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())


def plain(text: str) -> str:
    """Output without parts that differ between runs."""
    text = tidy(text)
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return text


def executed(page: Path, folder: Path) -> str:
    """The page, with the output of its commands in a folder, which the page calls `/srv`.

    A comment `# ends with N` after a command gives its exit code, if that is not 0; the output of such a command
    includes standard error. The name of a run in a command is replaced by the last printed one. A last line `…`
    stands for further output. `ACCEPT=1` writes the page.
    """
    text = page.read_text(encoding="utf-8")
    written, at = "", 0
    last: dict[re.Pattern[str], str] = {}
    for command, said in sessions(text):
        line = _ENDS_WITH.sub("", command)
        for pattern, name in last.items():
            line = pattern.sub(name, line)
        code, output = _run(line, folder)
        ending = _ENDS_WITH.search(command)
        assert code == (int(ending[1]) if ending else 0), f"{command}: ended with {code}: {output}"
        names = RUN.findall(output)
        last |= {RUN: names[0]} if names else {}
        shown = tidy(output.replace(str(folder), "/srv").replace(socket.gethostname(), "lake-1"))
        head = f"$ {command}\n"
        start = text.index(f"{head}{said}", at)
        written += text[at:start] + head + (said if _agrees(shown, said) else shown)
        at = start + len(head) + len(said)
    written += text[at:]
    if os.environ.get("ACCEPT"):
        page.write_text(written, encoding="utf-8")
    return written


def _agrees(shown: str, said: str) -> bool:
    """Whether an output is the page's, apart from parts that differ between runs."""
    said = plain(said)
    if said.endswith(OMITTED):
        return plain(shown).startswith(said.removesuffix(OMITTED))
    return plain(shown) == said


def _run(line: str, folder: Path) -> tuple[int, str]:
    """The exit code and output of a command.

    `retention`, `retention-job` and `python FILE.py` run in this process, `retention` even at the head of a pipe; other
    commands run in a shell.
    """
    command, _, rest = line.partition(" | ")
    if command.startswith("retention-job "):
        _, job, *arguments = shlex.split(command)
        ended = run_job(job, folder, *arguments)
        return ended.returncode, ended.stderr + ended.stdout
    if script := re.fullmatch(r"python ([\w.-]+\.py)", line):
        with redirect_stdout(io.StringIO()) as printed:
            runpy.run_path(script[1], run_name="__main__")
        return 0, printed.getvalue()
    if not command.startswith("retention "):
        return _in_shell(line, folder, "")
    done = invoke(options_first(shlex.split(command)[1:]))
    if rest:
        return _in_shell(rest, folder, done.stdout)
    return done.exit_code, done.output if done.exit_code else done.stdout


def _in_shell(line: str, folder: Path, stdin: str) -> tuple[int, str]:
    shell = subprocess.run(
        ["sh", "-c", line], cwd=folder, input=stdin, capture_output=True, text=True, check=False
    )
    return shell.returncode, shell.stderr + shell.stdout
