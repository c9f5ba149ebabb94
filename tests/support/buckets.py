"""A local object store: a moto server in its own process, used over real HTTP."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import boto3

from retention.storage import files

BUCKET = "lake"
_SERVER = Path(__file__).with_name("s3_server.py")
_PATIENCE_S = 300
"""A busy machine starts the server slowly."""


@contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """Run an object store with one bucket; yields the environment to access it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    command = [sys.executable, str(_SERVER), "-H", "127.0.0.1", "-p", str(port)]
    quiet = os.environ | {"PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=quiet
    ) as server:
        try:
            _wait_for(port)
            boto3.client(
                "s3",
                endpoint_url=environment["AWS_ENDPOINT_URL"],
                aws_access_key_id="test",
                aws_secret_access_key="test",  # noqa: S106  (the store's own)
                region_name="us-east-1",
            ).create_bucket(Bucket=BUCKET)
            yield environment
        finally:
            server.terminate()


def _wait_for(port: int) -> None:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the object store does not answer")


@dataclass(frozen=True)
class ObjectPath:
    """The subset of `pathlib.Path` used by tests, on an object store."""

    uri: str

    def __truediv__(self, below: str) -> ObjectPath:
        return ObjectPath(f"{self.uri}/{below}")

    def __str__(self) -> str:
        return self.uri

    @property
    def name(self) -> str:
        """The last part."""
        return self.uri.rpartition("/")[2]

    @property
    def parts(self) -> tuple[str, ...]:
        """All parts."""
        return PurePosixPath(self.uri).parts

    def exists(self) -> bool:
        """Whether the object exists, or any object below."""
        return files.length(self.uri) is not None or bool(self.rglob("*"))

    def rglob(self, pattern: str) -> list[ObjectPath]:
        """All objects below with a matching name."""
        found = [ObjectPath(f"{self.uri}/{name}") for name in files.names(self.uri)]
        for directory in files.directories(self.uri):
            found += (self / directory).rglob("*")
        return [path for path in found if PurePosixPath(path.uri).match(pattern)]

    def glob(self, pattern: str) -> list[ObjectPath]:
        """The objects directly below with a matching name."""
        named = [self / name for name in files.names(self.uri)]
        return [path for path in named if PurePosixPath(path.name).match(pattern)]

    def read_bytes(self) -> bytes:
        """The whole content."""
        content = files.read_bytes(self.uri)
        assert content is not None, self.uri
        return content

    def write_bytes(self, content: bytes) -> None:
        """Replace the content."""
        files.replace(self.uri, content)

    def write_text(self, content: str) -> None:
        """Replace the content by a text."""
        files.replace(self.uri, content.encode())

    def unlink(self) -> None:
        """Delete it."""
        files.delete([self.uri])
