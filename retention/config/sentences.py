"""The effect of every key of `retention.yaml`, for the published schema and the reference; no command imports it."""

from __future__ import annotations

from collections.abc import Mapping

_NAME = "The name: at most 255 bytes, without whitespace and without . * > / \\"
_SELECTED = {
    "group": "The group whose settings apply where this entry sets none; a group may have one itself.",
    "tags": "Words to select by (--tag), without blanks and commas.",
}
_DESCRIPTIVE = {
    "description": "Text for people; no effect on retention.",
    "metadata": "Names and values for people; no effect on retention.",
    "template_owner": "Accepted as the server prints it; no effect on retention.",
}
_RUNS = {
    "grace": "How long removed files are kept for readers and undo. After a change, the next pass that removes"
    " something updates a Delta table.",
    "history": "How long records of runs, and evidence of removals, are kept; reclaim deletes older ones unless a later"
    " run depends on them.",
    "engine": "spark, local, or auto: Spark if more than local_limit must be read.",
    "local_limit": "The most that auto reads in this process.",
    "guards": "Bounds on what one pass may remove; {}: none.",
    "approve": "A person must approve removals by scheduled jobs: true, or above an amount. Until then jobs/retain.py"
    " refuses (4).",
}
_KEEPING = _RUNS | {
    "format": "The format of a new table; parquet only on local and HDFS-like file systems.",
    "archive": "A directory or s3://bucket/prefix to which files are copied before a run removes them.",
    "archive_keep": "How long copies in the archive are kept; reclaim deletes older ones, except those that a legal"
    " hold may cover.",
    "compact": "Scheduled compaction: true, or its bounds.",
    "spark_writes": "Spark appends to or compacts the Delta table while the engine writes: on a local disk each commit"
    " waits 100 ms and checks that Spark has not overwritten it. Not with exclusive.",
}
_STORAGE = _KEEPING | {
    "segment_size": "An append opens a new segment when the open one has reached this size.",
    "segment_span": "An append opens a new segment when its message is this much younger than the first one.",
    "layout": "deadline: the messages of a segment are divided among files by lifetime, so that mixed TTLs expire as"
    " whole files. Not with whole_segments.",
    "vectors": "A new Delta table has deletion vectors, so that few removals from a file copy nothing; deltalake's"
    " to_pyarrow_table and to_pandas refuse such tables. Not with format: parquet.",
}
_EXCLUSIVE = "No other program writes the table at the same time, so that Spark may commit on S3."
_SERVER_ONLY = "Checked as the server checks it; no effect on retention."
_STREAM = (
    _STORAGE
    | _SELECTED
    | _DESCRIPTIVE
    | dict.fromkeys(
        (
            *("max_consumers", "num_replicas", "placement", "compression", "persist_mode"),
            *("allow_direct", "mirror_direct", "allow_atomic", "allow_batched"),
            *("allow_msg_counter", "allow_msg_schedules", "republish"),
        ),
        _SERVER_ONLY,
    )
    | {
        "name": f"{_NAME}.",
        "subjects": "The subjects that the stream stores, by default its name. They overlap neither within a stream nor"
        " between streams (10065).",
        "retention": "interest and workqueue first remove messages that no consumer needs. Once a run has used it, a"
        " change to or from workqueue is refused.",
        "max_age": "Messages of this age are removed; at least 100ms; 0: off.",
        "expiry": "head, as on the server: age removes messages from the lowest sequence on, and stops at the first"
        " young one. each: age removes every old message, wherever it is. Needs max_age.",
        "max_msgs": "The most messages of the stream; the oldest are removed.",
        "max_bytes": "The most bytes of the stream, as the broker counts them; the oldest messages are removed.",
        "max_msgs_per_subject": "The most messages of a subject; its oldest are removed.",
        "max_subjects": "The most subjects; those whose last message is oldest are removed whole. Not with"
        " whole_segments, sealed or an acting hold_for_consumers.",
        "delete_retention": "A subject is removed whole when its last message is a deletion of this age. Not with"
        " whole_segments, deny_purge, sealed or an acting hold_for_consumers.",
        "max_msg_size": "Larger messages are refused; below 2 GiB.",
        "discard": "new: max_msgs and max_bytes refuse new messages and remove nothing.",
        "discard_new_per_subject": "A full subject refuses messages; needs discard: new and max_msgs_per_subject.",
        "storage": "The formula of a message's size.",
        "no_ack": "Needed for > and for the server's own subjects ($JS.>, $SYS.>, …).",
        "duplicate_window": "How long a message id counts, even after its message is removed; 2m by default, never"
        " above max_age; off for mirrors and sources.",
        "first_seq": "The first sequence of a new stream, at most 2^62.",
        "sealed": "Accepts no further messages; forces max_age: 0, discard: new, deny_delete and deny_purge.",
        "deny_delete": "Single messages cannot be deleted.",
        "deny_purge": "The stream cannot be purged.",
        "allow_rollup_hdrs": "A published message with Nats-Rollup replaces older ones; excludes deny_purge.",
        "allow_msg_ttl": "A message's own Nats-TTL counts. Once a run has used it, a pass without it is refused.",
        "subject_delete_marker_ttl": "A marker replaces the expired last message of a subject and stays this long; at"
        " least 1s. Enables allow_msg_ttl and allow_rollup_hdrs.",
        "mirror": "The stream of this warehouse that `retention mirror` copies; external is refused there.",
        "sources": "The streams of this warehouse from which `retention mirror` copies; external is refused there.",
        "sync": "The stream of a live NATS server that `retention sync nats` copies; nothing else writes here.",
        "subject_transform": "Renames subjects when messages are published or mirrored.",
        "consumer_limits": "Defaults and bounds of the stream's consumers.",
        "mode": "replay: a pass removes what a server with these limits would have removed at each publish and expiry,"
        " refused, or answered as a duplicate; update: what an update of its configuration would remove. Excludes"
        " consumers' retention, markers, origins and limits that no server has.",
        "whole_segments": "Only whole sealed segments are removed, once each of their messages may be. Excludes"
        " subject_delete_marker_ttl, max_subjects and delete_retention.",
        "exclusive": _EXCLUSIVE,
        "quiet": "Removals are no data change to streaming readers of a Delta table.",
        "unmatched": "remove: with interest and workqueue, messages that no consumer's filter matches are removed, too,"
        " and with interest publish does not store them.",
        "release_share": "Of earlier builds: it has no effect, delete the line.",
        "hold_for_consumers": "Limits keep messages that consumers still need, within bounds. Only with retention:"
        " limits; not with whole_segments or subject_delete_marker_ttl.",
        "consumers": "Consumers to create or update; an unlisted one is not deleted.",
    }
)
_HOLDS = {
    "holds": "Legal holds, which the next run that removes records. Deleting a line releases nothing; a changed one is"
    " another legal hold.",
}
_HOLD = {
    "reason": "Kept on record.",
    "owner": "The person or case to ask about it.",
    "from": "Only what was stored at this time or later; of a table, by its time column.",
    "to": "Only what was stored before this time.",
    "until": "The time at which it ends; by default when it is released.",
}
_OFFSETS = _HOLD | {
    "from_seq": "The lowest sequence, or offset in each partition.",
    "to_seq": "The highest one.",
}
_LIMITS = {
    "max_age": "Rows of this age are removed; needs time.",
    "max_rows_per_key": "The most rows of a key; its oldest are removed. Needs key, and time or order.",
    "max_rows": "The most rows; the oldest are removed. Needs time or order.",
    "max_bytes": "The most bytes by size; without size by whole files, which needs time.",
}
SENTENCES: Mapping[str, Mapping[str, str]] = {
    "ConfigFile": {
        "warehouse": "A directory, relative to this file, or s3://bucket/prefix.",
        "signing_key": "The file of a private key (Ed25519, PEM without a password) that signs files of history export;"
        " relative to this file.",
        "ledger": "A directory or s3://bucket/prefix outside the warehouse that gets each legal hold and erasure as"
        " well; after a restore from a backup they are applied again before anything is removed.",
        "defaults": "Settings for streams without their own; grace, history, engine, local_limit, guards and approve"
        " also for tables.",
        "server_defaults": "Iggy's server-wide settings, for topics without their own.",
        "owner": "The name by which this file owns its streams, the same in every copy of it; by default its host and"
        " path.",
        "unlisted": "The reaction to a stream that no configuration lists any more: keep says nothing, warn names it,"
        " fail also ends with 4.",
        "groups": "Settings by name, for the streams, topics and tables with group: NAME.",
        "streams": "Streams, each with the keys below or as `nats stream info --json` prints it.",
        "buckets": "Key-value buckets, each a stream named KV_ and its name.",
        "topics": "Iggy's topics.",
        "tables": "Tables of other owners, whose rows are removed where they are.",
    },
    "StorageSettings": _STORAGE,
    "StreamConfig": _STREAM | _HOLDS,
    "TopicConfig": _KEEPING
    | _SELECTED
    | _HOLDS
    | {
        "name": "The name: 1 to 255 bytes, any of them.",
        "stream": "Iggy's stream, under which statistics group the topic.",
        "sync": "The topic of a live Iggy server that `retention sync iggy` copies; nothing else writes here.",
        "partitions": "The number of partitions, 1 to 1000.",
        "profile": "Whose rules: modern are those of Iggy 0.9, v8 those of 0.8.",
        "message_expiry": "A segment is removed when its newest message is this old; never, or an integer of"
        " microseconds.",
        "max_topic_size": "The most bytes of the topic; the oldest segments are removed. unlimited, or at least one"
        " segment; a bare 0 is refused.",
        "segment_size": "A multiple of 512 bytes up to 1GiB; with modern at least 1MiB, and fixed at creation.",
        "max_message_size": "The largest batch that publish appends at once; with modern, a partition is bounded by at"
        " least a segment plus this.",
        "respect_consumer_offsets": "Segments that a consumer or a group has not read are kept.",
        "roll_after": "The next publish or pass seals an open segment whose first message is this old.",
        "seed_names": "The name as servers of 2023 wrote it: lower case, blanks as dots.",
    },
    "ServerDefaults": {
        "message_expiry": "The message_expiry of topics without their own.",
        "max_topic_size": "The max_topic_size of topics without their own.",
        "segment_size": "The segment_size of topics without their own.",
    },
    "TableConfig": _RUNS
    | _SELECTED
    | _LIMITS
    | _HOLDS
    | {
        "name": f"{_NAME}.",
        "location": "A directory, relative to this file, s3://bucket/prefix, or catalog.schema.table of Spark; neither"
        " within the warehouse's own directories nor around it.",
        "format": "parquet: a local directory of Parquet files without a log, from which only whole files are removed.",
        "time": "The column with the time of a row: DATE, TIMESTAMP, TIMESTAMP_NTZ with zone, or an integer with"
        " unit.",
        "zone": "The IANA zone of times without one.",
        "unit": "The unit of integer times since the epoch.",
        "key": "The columns that identify the subject of a row; a row with a null in one has no key.",
        "order": "The columns that order the rows of one time, and alone the rows of a key, oldest first.",
        "size": "The column with the bytes of a row.",
        "expires_at": "The column with the instant from which a row is expired; null: never.",
        "policies": "Limits for rows with certain values; a row belongs to the first that it matches.",
        "evidence": "The keys that runs record of removed rows, beside their times: keys, hashed, or none (neither).",
        "exclusive": _EXCLUSIVE,
    },
    "RowPolicyConfig": _LIMITS
    | {
        "where": "Column → values; a row matches if it has one of the values in each column. null matches only if"
        " listed.",
        "expires_at": "off: these rows do not expire by their column.",
    },
    "BucketConfig": _STORAGE
    | _SELECTED
    | _DESCRIPTIVE
    | {key: _STREAM[key] for key in ("num_replicas", "placement", "republish", "storage")}
    | {key: _STREAM[key] for key in ("exclusive", "quiet")}
    | {
        "name": "The name: letters, digits, _ and -.",
        "history": "The values of a key that are kept, with the newest: 1 to 64.",
        "ttl": "The age at which a value expires; 0: never.",
        "max_value_size": "Larger values are refused.",
        "max_bytes": "Values beyond this size of the bucket are refused.",
        "limit_marker_ttl": "Expired keys leave a marker for this long, and keys may have a TTL of their own.",
        "allow_msg_ttl": "Keys may have a TTL of their own without limit_marker_ttl, as in buckets of nats-py.",
        "compression": _SERVER_ONLY,
        "mirror": "The bucket of which this one is a copy.",
        "sources": "The buckets whose values are copied to this one.",
        "delete_retention": "Deleted keys are removed after this time.",
        "segment_span": "As of a stream, but off by default.",
    },
    "Compaction": {
        "min_files": "The files of a segment from which a merge is worthwhile.",
        "dead_share": "The removed share of a file or segment from which the rest is rewritten.",
        "min_segment": "The size up to which small sealed segments are merged, regardless of their time span; 0:"
        " never.",
    },
    "Approval": {
        "above_messages": "More messages need an approval.",
        "above_rows": "The same, by the name for tables.",
        "above_bytes": "More bytes need an approval.",
    },
    "GuardSettings": {
        "max_removed_share": "Refuses a pass that removes more than this share of the messages.",
        "max_removed_bytes": "Refuses a pass that removes more bytes, as the broker counts them.",
        "min_kept_messages": "Refuses a pass that removes something and leaves fewer messages.",
        "min_kept_rows": "The same, by the name for tables.",
    },
    "StreamHold": _OFFSETS | {"subject": "A subject filter."},
    "TopicHold": _OFFSETS,
    "RowHold": _HOLD | {"key": "Column → the value of covered rows; any columns of the table."},
    "ConsumerHold": {
        "consumers": "all, or the names of the consumers for which messages are kept.",
        "action": "hold keeps the messages, warn only reports them.",
        "max_age": "The age up to which messages are kept; 0: without bound.",
        "max_bytes": "The bytes up to which messages are kept; 0: without bound.",
    },
    "StreamSource": {
        "name": "The stream that messages are copied from.",
        "opt_start_seq": "The first sequence to copy.",
        "opt_start_time": "The first instant to copy.",
        "filter_subject": "Only these subjects are copied.",
        "subject_transforms": "Renames of subjects during the copy, from src to dest.",
        "external": "A stream of another account; checked, and refused by `retention mirror`.",
        "consumer": _SERVER_ONLY,
    },
    "TopicSyncSource": {
        "server": "The server's HOST:PORT, or iggy+tcp://HOST:PORT with `?tls=true`; without credentials.",
        "stream": "The stream's name on the server, by default that of the topic's `stream`.",
        "topic": "The topic's name on the server, by default the same name.",
        "max_missed": "The most offsets that the server may have removed before they were copied; 0: none.",
    },
    "SyncSource": {
        "server": "The server's URL, or several with commas; without a user, password or token.",
        "context": "The name of a context of the `nats` command, which has the URL and the credentials.",
        "stream": "The stream's name on the server, by default the same name.",
        "max_missed": "The most sequences that the server may have removed before they were copied; 0: none.",
    },
}
"""The name of a model → key → its effect. Keys of consumers are in docs/semantics/consumers.md."""
