"""Requests to the JetStream API, and its errors as sentences."""

from __future__ import annotations

import json
from typing import Any

from retention.errors import RetentionError, ServerError, UsageError
from retention.nats.connection import Connection

ANSWERED_WITHIN_S = 30.0
INACTIVE_S = 30
"""The server deletes a consumer that nobody asked anything of for this long."""
_NS = 10**9
_NO_STREAM = 10059
_MOST_CONSUMERS = 10026
NO_MESSAGE = 10037
_NO_JETSTREAM = (10076, 10039)


async def call(
    connection: Connection, request: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Ask the API, such as `STREAM.INFO.ORDERS`; returns the answer's JSON.

    Raises:
        UsageError: A permission or the stream is missing.
        ServerError: The server answered with another error, which is named with its code, or not at all.
    """
    subject = connection.api_subject(request)
    payload = json.dumps(body).encode() if body else b""
    answer = await connection.ask(subject, payload, ANSWERED_WITHIN_S)
    parsed: dict[str, Any] = json.loads(answer.payload)
    if "error" in parsed:
        raise _refusal(connection, request, parsed["error"])
    return parsed


class ApiError(ServerError):
    """An error in an answer of the API, with the server's error code."""

    code: int = 0


async def create_consumer(connection: Connection, stream: str, first: int) -> tuple[str, int]:
    """Make an ephemeral pull consumer with ack policy none from a sequence on; its name and its pending messages."""
    config = {
        "ack_policy": "none",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": first,
        "inactive_threshold": INACTIVE_S * _NS,
        "mem_storage": True,
        "num_replicas": 1,
    }
    body = {"stream_name": stream, "config": config}
    made = await call(connection, f"CONSUMER.CREATE.{stream}", body)
    return made["name"], made["num_pending"]


async def delete_consumer(connection: Connection, stream: str, name: str) -> None:
    """Delete a consumer."""
    await call(connection, f"CONSUMER.DELETE.{stream}.{name}")


def _refusal(connection: Connection, request: str, error: dict[str, Any]) -> RetentionError:
    code, text = error.get("err_code", 0), error.get("description", "no reason")
    stream = (request.split(".") + [""] * 3)[2]
    if code == _NO_STREAM:
        return UsageError(
            f"{connection.server} has no stream {stream} (server error {code}); correct the name, the account or the "
            "domain; `nats stream ls` lists the streams"
        )
    if code in _NO_JETSTREAM:
        return UsageError(
            f"{connection.server}: {text} (server error {code}); use an account with JetStream, or set the domain or "
            "the API prefix"
        )
    remedy = "look at the stream and the server, then try again"
    if code == _MOST_CONSUMERS:
        remedy = (
            "a sync needs a consumer while it runs: raise max_consumers of the stream or the account, delete a "
            f"consumer (`nats consumer ls {stream}`), or make a mirror without that limit and sync it"
        )
    refusal = ApiError(f"{connection.server}: {request}: {text} (server error {code}); {remedy}")
    refusal.code = code
    return refusal
