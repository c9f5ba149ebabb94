"""The sentences of exit codes 4 and 6 and of doctor's findings, from the source, and the kinds of their remedies.

`python -m tests.safety.remedies` prints the table: kind, place, error, sentence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from retention import errors

ROOT = Path(__file__).parents[2]
_FINDINGS = {"problem": 2, "warning": 2}
"""Constructors of `doctor`'s findings → the index of the remedy argument."""
ERRORS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and getattr(kind, "exit_code", None) in {4, 6}
}
"""The error classes with exit codes 4 and 6."""


@dataclass(frozen=True)
class Sentence:
    """A sentence of the source, with values as `{expression}`."""

    place: str
    error: str
    text: str

    @property
    def kinds(self) -> list[str]:
        """The kinds of its remedies."""
        return [name for name, kind in KINDS.items() if re.search(kind.pattern, self.text)]


@dataclass(frozen=True)
class Kind:
    """A kind of remedy, identified by its words, and the tests that execute it."""

    pattern: str
    tests: tuple[str, ...] = ()
    """As `file::function` below `tests/`."""
    untested: str = ""
    """The reason for no test; empty if there is one."""


_OWN = "safety/test_remedies.py::test_"
_FILES = f"{_OWN}a_file_that_cannot_be_read_is_restored_or_given_up_as_told"
KINDS = {
    "name the configuration that owns it": Kind(
        r"name that file with --config, or list the stream",
        (
            "retention/api/test_unlisted.py::test_what_rests_on_settings_is_refused_under_another_configuration",
        ),
    ),
    "restore from a copy": Kind(
        r"restore (it|them|the (file|directory|record|log)|that (file|directory|folder)) from a copy|from a copy, then|"
        r"restore (them|both|the records) from a copy|_unreadable\(|take it from a backup again|restore the files",
        (_FILES,),
    ),
    "delete or move what cannot be read": Kind(
        r"or (delete|remove|move) (it|that file)(?! out of the source)|delete \{' and '|or leave it out|"
        r"move \{layout.root\} away|delete `_retention",
        (_FILES,),
    ),
    "mend a source": Kind(
        r"correct the file, .*move it out of the source",
        (
            "spark/test_ingest_remedies.py::test_an_ingest_goes_on_once_a_damaged_file_is_whole_or_moved_away",
        ),
    ),
    "enter anew what was lost": Kind(
        r"store an offset again|create the consumers again", (_FILES,)
    ),
    "repair lost": Kind(
        r"\{given_up\(|repair lost|_remedy\((stream|layout\.stream), |name each that is to be given up|\{repairs\}|"
        r"takes out one that is named",
        (_FILES, f"{_OWN}a_foreign_file_is_taken_out_of_a_delta_table_as_told"),
    ),
    "end or replace a pause": Kind(
        r"command\('(pause|resume)', ",
        (
            "retention/api/test_pausing.py::test_a_removal_is_refused_until_resumed",
            "retention/api/test_pausing.py::test_nothing_is_removed_while_a_record_cannot_be_read",
        ),
    ),
    "release a legal hold": Kind(
        r"command\('hold release', ",
        ("retention/api/test_holding.py::test_no_removal_takes_a_held_message",),
    ),
    "use the warehouse's ledger": Kind(
        r"mount it or correct `ledger:`|it applies the legal holds and erasures of the ledger",
        (
            "erasure/test_ledger.py::test_a_ledger_that_is_gone_stops_removals_and_nothing_else",
            "erasure/test_ledger.py::test_resume_replays",
        ),
    ),
    "another way to keep messages": Kind(
        r"because it has no subjects|and a legal hold would begin another table|hold them by subject, sequences",
        ("retention/api/test_holding.py::test_holds_that_cannot_be_are_refused",),
    ),
    "undo without a hold": Kind(
        r"undo the run without --hold",
        ("retention/api/test_holding.py::test_an_undo_of_a_drop_takes_no_hold",),
    ),
    "hold rows by their columns": Kind(
        r"neither subjects nor sequences|names no `time` column of this table, so that no row can be held|"
        r"statements would remove rows under legal hold|rows have no sequences by which",
        (
            "retention/tables/test_holds.py::test_holds_that_do_not_fit_are_refused",
            "retention/tables/test_holds.py::test_a_saved_plan_from_before_a_hold_is_stale",
        ),
    ),
    "repair foreign": Kind(
        r"repair foreign|_remedy\(layout, unfit\)|take it away|take the file away|write it without those columns",
        (f"{_OWN}a_foreign_file_is_moved_aside_as_told",),
    ),
    "repair sequences": Kind(r"\{remedy\(", (f"{_OWN}impossible_numbers_are_repaired_as_told",)),
    "repair returned": Kind(
        r"\{repair\} removes them",
        (
            "contract/test_returned.py::test_what_came_back_is_named_at_the_next_look_and_removed_by_a_command",
        ),
    ),
    "repair clock": Kind(r"repair clock", (f"{_OWN}a_guard_is_lifted_as_told",)),
    "RESTORE": Kind(
        r"RESTORE TABLE",
        (
            "contract/test_returned.py::"
            "test_what_was_made_of_it_again_is_settled_by_the_restore_that_the_refusal_names",
            "spark/test_remedies.py::test_spark_carries_out_the_statements_that_refusals_name",
        ),
    ),
    "deletion vectors": Kind(
        r"of_vectors\(|next `retention apply` has Spark",
        ("spark/test_remedies.py::test_spark_carries_out_the_statements_that_refusals_name",),
    ),
    "other programs on an object store": Kind(
        r"\{WAYS\}|^.*WAYS|exclusive: true (for this stream|if it never writes)",
        ("contract/test_s3_remedies.py::test_a_program_that_writes_otherwise_is_taken_in_as_told",),
    ),
    "a flag that lifts a guard": Kind(
        r"--allow-(future|rewind|large)", (f"{_OWN}a_guard_is_lifted_as_told",)
    ),
    "another limit": Kind(
        r"write another limit", (f"{_OWN}a_guard_is_given_another_limit_as_told",)
    ),
    "a setting put back": Kind(
        r"write (allow_msg_ttl|retention)|say format", (f"{_OWN}a_setting_is_put_back_as_told",)
    ),
    "limits of consumers": Kind(
        r"of consumer_limits", (f"{_OWN}limits_of_consumers_are_raised_as_told",)
    ),
    "a property of the table": Kind(
        r"unset (that table property|delta)", (f"{_OWN}a_property_of_the_table_is_unset_as_told",)
    ),
    "features of a table in place": Kind(
        r"^\{(sentence|unsafe)\}$",
        (
            "retention/inspect/test_adopt.py::test_a_table_from_which_nothing_may_be_removed_is_refused_until_it_may",
            "retention/tables/test_planning.py::test_a_table_that_only_grows_is_refused_until_it_may_shrink",
        ),
    ),
    "the configuration of a table in place": Kind(
        r"name a column of integers|deletedFileRetentionDuration to \{grace\}",
        (
            "cli/test_tables.py::test_the_doctor_wants_sizes_to_be_integers",
            "cli/test_tables.py::test_the_doctor_examines_tables",
        ),
    ),
    "an undo on a table in place": Kind(
        r"restore the rows from a copy|add rows that have to come back|"
        r"undone already, by run|remove what came back, or leave it",
        (
            "retention/tables/test_apply.py::test_an_undo_is_refused_where_files_are_gone_or_came_back",
        ),
    ),
    "a race with Spark on a local disk": Kind(
        r"let no Spark job write to the table meanwhile",
        untested="the entry of Spark must come within microseconds; the run is settled as a killed one",
    ),
    "a partition value that is none": Kind(
        r"leave that column out of the configuration",
        untested="no writer writes one; whoever configures the table may choose another column",
    ),
    "constraints": Kind(r"drop them first", (f"{_OWN}constraints_of_a_table_are_dropped_as_told",)),
    "columns of the table": Kind(
        r"overwrite the table without them|give the table the columns",
        (f"{_OWN}columns_of_others_leave_a_table_as_told",),
    ),
    "a new stream of the rows": Kind(
        r"copy the rows into a new stream",
        (f"{_OWN}rows_of_a_table_with_a_strange_feature_are_copied_as_told",),
    ),
    "a new stream": Kind(
        r"into a new (stream|topic)|continue in a new stream|--as|name a new one with --as|\{instead\}",
        (
            f"{_OWN}an_import_goes_into_a_new_stream_as_told",
            f"{_OWN}messages_come_back_as_a_new_stream_as_told",
        ),
    ),
    "copy a server's stream": Kind(
        r"_NOTHING\}|accept the gap|make a mirror there|remove its sync|run it again, which compares",
        (
            "live/test_sync.py::test_a_consumed_stream_is_copied_from_the_mirror_that_the_refusal_names",
            "live/test_sync.py::test_what_a_purge_took_first_is_refused_and_then_accepted",
        ),
    ),
    "give all rows": Kind(
        r"\(`start`, in a query with a new checkpoint\), and give all rows$",
        (
            "spark/test_sync_frames.py::test_frames_that_would_lose_double_or_mix_messages_are_refused",
        ),
    ),
    "begin again on a live stream": Kind(
        r"run it again, and report it if it stays|"
        r"start again, so that the two are compared|compare the two, then begin elsewhere|"
        r"read again, and report it if it stays|read the stream in the account that it belongs to",
        ("live/test_stream_reading.py::test_a_stream_made_anew_in_the_middle_is_refused",),
    ),
    "let an Iggy server answer": Kind(
        r"look at the server's log|correct the credentials|give the user read_topic|"
        r"the server must be of version 0\.9|import the server's logs with",
        (
            "live/test_iggy.py::test_what_users_may_do_is_told_and_no_secret_is_shown",
            "retention/ingest/sync/iggy/test_run.py::test_a_topic_with_the_rules_of_old_servers_is_refused",
        ),
    ),
    "limits of a copy": Kind(
        r"raise it by what comes between two passes|those of the server do not act here",
        ("retention/doctor/test_synced.py::test_the_doctor_says_what_a_pass_would_remove",),
    ),
    "a query on a live stream": Kind(
        r"\{_ACCEPT\}|\{_LOSS\}=false|the option `start` is .* or before$",
        (
            "spark/test_nats_source.py::test_a_query_begins_with_what_the_stream_still_holds",
            "spark/test_nats_source.py::test_a_query_fails_where_messages_were_missed_or_the_stream_is_another",
        ),
    ),
    "undo another run first": Kind(
        r"undo that one first", (f"{_OWN}runs_are_undone_in_the_order_that_is_told",)
    ),
    "undo of a drop": Kind(r"\{back\}\{instead\}", (f"{_OWN}a_dropped_stream_comes_back_as_told",)),
    "a build that reads row tombstones": Kind(
        r"(of|with) commit \{LAST_BUILD\}",
        (
            "contract/test_released.py::test_a_stream_is_read_after_the_remedy_that_its_refusal_names",
        ),
    ),
    "simulate without growth": Kind(
        r"say --growth none$",
        ("retention/inspect/test_simulation.py::test_what_cannot_be_simulated_is_refused",),
    ),
    "replay without it": Kind(
        r"nothing was replayed, because",
        (
            "retention/inspect/test_replay.py::test_a_replay_is_possible_after_the_remedy_of_its_refusal",
        ),
    ),
    "repair replay": Kind(
        r"lets the next pass replay what is stored",
        (
            "retention/planners/test_replayed.py::test_a_pass_without_its_record_removes_nothing_until_it_begins_anew",
        ),
    ),
    "plan again": Kind(
        r"or plan again|plan again$|changed; plan again",
        (f"{_OWN}a_damaged_plan_is_made_again_as_told",),
    ),
    "approve again": Kind(
        r"have that (plan|report) approved|have the report of jobs/plan\.py approved",
        ("jobs/test_plan.py::test_what_was_approved_goes_at_its_instant",),
    ),
    "plan before an estimate": Kind(
        r"without --estimate once", (f"{_OWN}an_estimate_comes_after_the_plan_that_is_told",)
    ),
    "another place of an export": Kind(
        r"name another place, or remove that file",
        (f"{_OWN}an_import_goes_into_a_new_stream_as_told",),
    ),
    "repair place": Kind(
        r"repair place|\{_place_remedy\(",
        (f"{_OWN}a_copied_warehouse_is_let_write_to_the_archive_as_told",),
    ),
    "requests on topics": Kind(
        r"delete-segments|remove its oldest segments with", (f"{_OWN}a_topic_is_emptied_as_told",)
    ),
    "resume an erasure": Kind(
        r"then repeat the command with --resume|options='--resume'",
        ("erasure/test_erase.py::test_a_trace_makes_the_command_fail_until_it_is_gone",),
    ),
    "erase again": Kind(
        r"erase again|erase these rows once more",
        (
            "erasure/test_erase_tables.py::test_what_the_owner_restores_is_noticed",
            "erasure/test_erase.py::test_a_damaged_record_is_named",
            "erasure/test_erase.py::test_damaged_needles_are_named_and_made_again",
        ),
    ),
    "a stream that was renamed": Kind(
        r"in its _retention/format\.json", (f"{_OWN}a_stream_that_was_renamed_says_so_as_told",)
    ),
    "a link": Kind(
        r"put the directory itself there",
        (f"{_OWN}a_link_out_of_the_warehouse_is_replaced_as_told",),
    ),
    "undo beside others' work": Kind(
        r"describe_change\(undo\)|_remedies\(undo\)|restore (messages|the others) from",
        ("retention/apply/test_undo.py::test_what_others_did_to_the_table_is_told_as_it_is",),
    ),
    "repair lost-commit": Kind(
        r"\{repair\} commits it again|publish or run again what is missing",
        ("contract/test_lost_commits.py::test_a_lost_publish_is_named_and_committed_again",),
    ),
    "a backup or log made or copied again": Kind(
        r"\{_?AGAIN\}|the backup again|copy the log again|take it from a backup|back (it|that one) up|"
        r"back the stream up|not an Arrow stream|it must have one row of the shape",
        (f"{_OWN}a_backup_is_copied_again_as_told",),
    ),
    "a line or row corrected": Kind(
        r"correct or (remove|leave out)|change the message, or|rename the subject",
        (f"{_OWN}a_line_is_corrected_as_told",),
    ),
    "options of an ingest": Kind(
        r"--(take|skip)|\{more\}; nothing was read; \{remedy\}|--source-format|with the option that is right|"
        r"append a DataFrame|let that release finish",
        (
            "spark/test_ingest_remedies.py::test_an_ingest_goes_on_by_the_option_that_its_refusal_names",
            "retention/ingest/test_table_source.py::test_a_column_may_be_added_and_none_may_change",
        ),
    ),
    "acks": Kind(
        r"append the messages first|restore it, or give another log",
        (f"{_OWN}an_ack_log_goes_on_as_told",),
    ),
    "consumers' configuration": Kind(
        r"^\{[^}]*\}: \{(why|'; '\.join\(sentences\))\}|name another consumer|more than case|request more bytes|"
        r"say which match the consumer's filters|"
        r"import its state from the broker|remove the list from the configuration|consumer \{name\} of \{stream\}",
        untested="they refuse a request about consumers, after which passes and publishes go on as before",
    ),
    "mirrors": Kind(
        r"remove (external|its mirror)|the mirrored bucket|restore the query's own checkpoint",
        untested="they refuse the copy from elsewhere, after which passes and publishes go on as before",
    ),
    "a mirror that is full": Kind(
        r"limits, or remove messages", (f"{_OWN}a_mirror_that_is_full_goes_on_as_told",)
    ),
    "partitions of a topic": Kind(
        r"write partitions:",
        (f"{_OWN}partitions_are_added_to_a_topic_as_told",),
    ),
    "requests that no server takes": Kind(
        r"if you mean it, which no server",
        (f"{_OWN}a_setting_that_forbids_a_request_is_taken_out_as_told",),
    ),
    "messages that are kept": Kind(
        r"removes the others",
        (
            "retention/planners/test_veto.py::test_a_stream_with_kept_messages_is_purged_and_not_dropped",
        ),
    ),
    "nothing to do": Kind(
        r"there is nothing to undo|can no longer be undone|kept no record of the sequences|stays out of the table|"
        r"the first: \{damaged|poll them from the server",
        untested="the sentence says that nothing is wrong, or that nothing helps",
    ),
    "run again": Kind(
        r"run again|try again|check it with",
        untested="the file that contradicts itself in between is made by no test but those of damaged stores",
    ),
    "defects": Kind(r"defect of the program", untested="only a defect of the program says so"),
    "another release": Kind(r"use (a newer|that) release", untested="there is no newer release"),
    "the machine": Kind(
        r"check the (disk|archive's storage)|set (both by NTP|the clocks? right)|set the clock|conditional put|"
        r"make setup|install |PYSPARK|_PACK|_SAME_PYTHON|_WRITABLE|_OTHER_PLACE|\{shared\}|^\{remedy\}|JARs|"
        r"Spark's own log",
        untested="disks, memories, clocks, buckets, JARs and workers are no part of a stream",
    ),
    "directories of Parquet files": Kind(
        r"list that directory (with `format: delta`|as a table of its own)|one directory deeper|changed; move it away|"
        r"remove rows with (a|the) program that writes|let no program read or write",
        untested="they refuse files that others list, or that cannot be moved in one step, before anything is moved",
    ),
    "findings that cost time": Kind(
        r"they only take up space|raise segment_size|retention (plan|apply)`|VACUUM follows|wait for it, or end",
        untested="they are warnings: passes and publishes work",
    ),
}


@cache
def sentences() -> tuple[Sentence, ...]:
    """Every sentence of exit codes 4 and 6, and of doctor's findings, in source order."""
    files = sorted((ROOT / "retention").rglob("*.py"))
    return tuple(sentence for file in files for sentence in _of_module(file))


def _of_module(file: Path) -> Iterator[Sentence]:
    text = file.read_text(encoding="utf-8")
    if not any(name in text for name in (*ERRORS, *_FINDINGS)):
        return
    module = ast.parse(text)
    aliases = {
        target.id
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and _names(node.value) & ERRORS
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    sentence_at = dict.fromkeys({*ERRORS, *aliases}, 0)
    if file.parent.name == "doctor" and file.name != "finding.py":
        sentence_at |= _FINDINGS
    for node in ast.walk(module):
        name = (
            node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        )
        if (
            isinstance(node, ast.Call)
            and name in sentence_at
            and len(node.args) > sentence_at[name]
        ):
            place = f"{file.relative_to(ROOT)}:{node.lineno}"
            yield Sentence(place, name, _text(node.args[sentence_at[name]]))


def _names(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(_text(value) for value in values)
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
        case _:
            return f"{{{ast.unparse(node)}}}"


if __name__ == "__main__":
    for sentence in sentences():
        print(
            f"{', '.join(sentence.kinds) or '-'}\t{sentence.place}\t{sentence.error}\t{sentence.text}"
        )
