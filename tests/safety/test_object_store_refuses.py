"""Refusals of an object store: one sentence with reason and remedy, the right exit code, and no secret."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.buckets import BUCKET, object_store
from tests.support.command_line import invoke

SECRET = "wJalrXUtnFEMIrecognisable"  # noqa: S105  (made up)
ORDERS = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 4}
ELSEWHERE = {"x-amz-bucket-region": "eu-west-3"}
ANSWERS: dict[str, tuple[int, dict[str, str], str]] = {
    "NoSuchBucket": (404, {}, "there is no such bucket"),
    "InvalidAccessKeyId": (403, {}, "AWS_ACCESS_KEY_ID"),
    "SignatureDoesNotMatch": (403, {}, "AWS_SECRET_ACCESS_KEY"),
    "ExpiredToken": (400, {}, "expired"),
    "AccessDenied": (403, {}, "list, read, write and delete"),
    "RequestTimeTooSkewed": (403, {}, "clock"),
    "PermanentRedirect": (301, ELSEWHERE, "AWS_REGION"),
    "AuthorizationHeaderMalformed": (400, ELSEWHERE, "AWS_REGION"),
}
LOOKS = (["plan"], ["state"], ["apply", "--yes"], ["messages", "ORDERS"])


@contextmanager
def refusing(code: str) -> Iterator[str]:
    """The address of an object store with the same answer to every request, in S3's form: no body for HEAD."""
    status, headers, _ = ANSWERS[code]
    said = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>m</Message></Error>'.encode()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(said)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """A function that runs a command on a warehouse at an endpoint; returns exit code and sentence."""
    for name, value in (("ACCESS_KEY_ID", "AKIA"), ("SECRET_ACCESS_KEY", SECRET)):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    config = tmp_path / "retention.yaml"

    def run(endpoint: str, words: list[str], bucket: str = BUCKET) -> tuple[int, str]:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        config.write_text(json.dumps({"warehouse": f"s3://{bucket}/w", "streams": [ORDERS]}))
        done = invoke(["--config", str(config), *words], stdin='{"subject": "orders.a"}')
        said = [line for line in done.stderr.splitlines() if ": failed (" not in line]
        assert len(said) == 1, done.output
        assert SECRET not in done.output
        assert "AWS Error" not in done.output
        return done.exit_code, said[0]

    return run


@pytest.mark.parametrize("code", ANSWERS)
def test_what_the_store_refuses_is_one_sentence_with_its_remedy(
    refused: Callable[..., tuple[int, str]], code: str
) -> None:
    with refusing(code) as endpoint:
        looks = LOOKS[:1] if code == "RequestTimeTooSkewed" else LOOKS  # retried for seconds
        for words in (*looks, ["publish", "ORDERS", "-"]):
            exit_code, sentence = refused(endpoint, words)
            assert (exit_code, ANSWERS[code][2] in sentence) == (2, True), (words, sentence)


def test_a_store_that_does_not_answer_is_no_mistake_of_the_configuration(
    refused: Callable[..., tuple[int, str]],
) -> None:
    exit_code, sentence = refused("http://127.0.0.1:1", ["plan"])
    assert (exit_code, "AWS_ENDPOINT_URL" in sentence) == (1, True), sentence


def test_a_bucket_that_is_not_there_is_not_taken_for_an_empty_warehouse(
    refused: Callable[..., tuple[int, str]],
) -> None:
    with object_store() as environment:
        for words in (*LOOKS, ["publish", "ORDERS", "-"]):
            exit_code, sentence = refused(environment["AWS_ENDPOINT_URL"], words, "missing")
            assert (exit_code, "no such bucket" in sentence) == (2, True), (words, sentence)
        empty = invoke(["--warehouse", "s3://missing/w", "state"])
        assert (empty.exit_code, "no such bucket" in empty.stderr) == (2, True), empty.output
