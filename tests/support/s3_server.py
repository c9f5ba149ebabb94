"""A moto server whose puts are one at a time, so that a conditional put checks and writes in one step, as S3 does."""

from __future__ import annotations

from threading import Lock
from typing import Any
from unittest.mock import patch

from moto.s3.responses import S3Response
from moto.server import main

_put_object = S3Response.put_object
_putting = Lock()


def _put_alone(response: S3Response) -> Any:
    with _putting:
        return _put_object(response)


if __name__ == "__main__":
    with patch.object(S3Response, "put_object", _put_alone):
        main()
