"""How to reach an object store: endpoint, region and credentials, as the AWS tools find them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from contextlib import suppress
from functools import cache
from pathlib import Path

from pyarrow import fs


def storage_options() -> dict[str, str]:
    """What deltalake needs to reach the object store: the AWS_* environment, else a profile's credentials."""
    environment = os.environ.items()
    options = {name: value for name, value in environment if name.startswith("AWS_") and value}
    if "AWS_ACCESS_KEY_ID" not in options:
        # With an endpoint of its own deltalake would ask only the machine's metadata service.
        options.setdefault("AWS_FORCE_CREDENTIAL_LOAD", "true")
    options.setdefault("AWS_REGION", region())
    options["aws_conditional_put"] = "etag"
    if endpoint().startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options


def file_system() -> fs.S3FileSystem:
    """Arrow's way to the object store."""
    return _client(endpoint(), region())


def endpoint() -> str:
    """The object store's own address, empty for that of Amazon."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def region() -> str:
    """The region, by environment, then profile."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return named or _profile().get("region") or "us-east-1"


def _profile() -> Mapping[str, str]:
    """What the AWS configuration file says of the chosen profile."""
    said = ConfigParser(interpolation=None)
    with suppress(ConfigParserError, UnicodeDecodeError):
        said.read(Path(os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser())
    name = os.environ.get("AWS_PROFILE", "default")
    section = name if name == "default" else f"profile {name}"
    return said[section] if said.has_section(section) else {}


@cache
def _client(endpoint: str, region: str) -> fs.S3FileSystem:
    scheme, separator, host = endpoint.partition("://")
    override = {"endpoint_override": host, "scheme": scheme} if separator else {}
    return fs.S3FileSystem(region=region, **override)
