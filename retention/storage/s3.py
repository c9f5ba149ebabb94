"""Access to an object store: endpoint, region and credentials, found as by the AWS tools; and its refusals."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obstore.store import S3Store
    from pyarrow import fs

NOT_ALLOWED = "the credentials (or the lack of any) do not allow it"
NO_ANSWER = "the store does not answer"
"""The only reason that may be transient."""

_REFUSALS = (
    (
        r"NO_SUCH_BUCKET|NoSuchBucket|no bucket",
        "there is no such bucket",
        "correct its name, or create it",
    ),
    (
        r"EXPIRED_TOKEN|ExpiredToken|TokenRefreshRequired",
        "the credentials have expired",
        "renew them",
    ),
    (
        r"INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|INVALID_CLIENT_TOKEN_ID|UNRECOGNIZED_CLIENT",
        "the store does not know the access key",
        "correct AWS_ACCESS_KEY_ID, or the profile that AWS_PROFILE names",
    ),
    (
        r"SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch",
        "the secret key is not that of the access key",
        "correct AWS_SECRET_ACCESS_KEY, or the profile that AWS_PROFILE names",
    ),
    (
        r"REQUEST_TIME_TOO_SKEWED|RequestTimeTooSkewed|REQUEST_EXPIRED",
        "this machine's clock is too far from the store's",
        "set it, best by NTP",
    ),
    (
        r"located in '|PermanentRedirect|AuthorizationHeaderMalformed|IncorrectEndpoint|configured region",
        "the bucket lies in another region than the one asked",
        "set AWS_REGION to the bucket's",
    ),
    (
        r"ACCESS_DENIED|AccessDenied|403 Forbidden|HTTP status 40[13]|Operation not supported",
        NOT_ALLOWED,
        "give ones that may list, read, write and delete there",
    ),
    (
        r"169\.254\.169\.254",
        "no credentials were found that a commit can use",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or install boto3, which reads profiles with a single "
        "sign-on, a role or a credential_process",
    ),
    (
        r"NETWORK_CONNECTION|Could not (connect|resolve)|error sending request|dns error|Connection refused",
        NO_ANSWER,
        "look at AWS_ENDPOINT_URL and the network",
    ),
)
"""Patterns of error texts, each with reason and remedy; the first match counts."""
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_PROVIDERS = {"sso_session", "sso_start_url", "role_arn", "credential_process"}
"""Keys of a profile with credentials that boto3 obtains."""
_MUTE = re.compile(r"No response body|HTTP status 40[03]|HTTP status 301")
"""Errors in responses without a body, and so without a reason."""


def storage_options() -> dict[str, str]:
    """The options of deltalake for the object store: the AWS_* environment, or else a profile's credentials."""
    environment = os.environ.items()
    options = {name: value for name, value in environment if name.startswith("AWS_") and value}
    if "AWS_ACCESS_KEY_ID" not in options:
        # With a custom endpoint, deltalake would query only the machine's metadata service.
        options.setdefault("AWS_FORCE_CREDENTIAL_LOAD", "true")
    options.setdefault("AWS_REGION", region())
    options["aws_conditional_put"] = "etag"
    if endpoint().startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options


def file_system() -> fs.S3FileSystem:
    """Arrow's file system of the object store, one per endpoint and region."""
    return _client(endpoint(), region())


def has_bucket(location: str) -> bool:
    """Whether the bucket of an `s3://` location exists; True if the store does not tell."""
    from pyarrow import fs

    bucket = location.partition("://")[2].partition("/")[0]
    try:
        return bool(file_system().get_file_info(bucket).type != fs.FileType.NotFound)
    except OSError:
        return True


def refusal(location: str, error: Exception) -> tuple[str, str] | None:
    """Reason and remedy of an error with a known cause; None for every other error.

    A store's response about one object may have no body; then a listing is requested, because its response has the
    reason.
    """
    from pyarrow import fs

    text = str(error)
    if _MUTE.search(text):
        parent = location.partition("://")[2].rpartition("/")[0]
        try:
            file_system().get_file_info(fs.FileSelector(parent, allow_not_found=True))
        except OSError as spoken:
            text = f"{spoken} {text}"
    for pattern, reason, remedy in _REFUSALS:
        if re.search(pattern, text):
            return f"{reason}{_elsewhere(text)}", remedy
    return None


def _elsewhere(text: str) -> str:
    match = re.search(r"located in '([a-z0-9-]+)'", text)
    return f" ({match[1]})" if match else ""


def endpoint() -> str:
    """The object store's address; empty for Amazon's."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def region() -> str:
    """The region from the environment, or else from the profile."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return named or _profile().get("region") or "us-east-1"


def object_store(location: str) -> tuple[S3Store, str]:
    """The client of the bucket of an `s3://` location, for requests that Arrow cannot make, and the location's key.

    Keys are taken as they are: a percent sign encodes nothing. The client is kept for its connections.
    """
    bucket, _, key = location.partition("://")[2].rstrip("/").partition("/")
    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    keys = {} if environment.get("AWS_ACCESS_KEY_ID") else _profile_keys()
    return _bucket_client(bucket, region(), (*environment.items(),), (*keys.items(),)), key


def only_arrow_finds_credentials() -> bool:
    """Whether the credentials are in a profile that other clients read through boto3, which is not installed."""
    if os.environ.get("AWS_ACCESS_KEY_ID") or _profile_keys():
        return False
    return bool(_PROVIDERS & _profile().keys()) and not _profile_provider()


def _profile_keys() -> dict[str, Any]:
    """The keys of the chosen profile; empty if it has none, as with a single sign-on."""
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    section = {**_profile(), **_section(file, _profile_name())}
    if _KEYS[0] not in section:
        return {}
    return {name: section[name] for name in _KEYS if name in section}


def _profile_provider() -> dict[str, Any]:
    """The credential provider of a profile without keys; empty if there is none, or boto3 is not installed."""
    if not _PROVIDERS & _profile().keys():
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return {}
    return {"credential_provider": Boto3CredentialProvider()}


def _profile() -> Mapping[str, str]:
    """The chosen profile's section of the AWS configuration file; empty if there is none."""
    name = _profile_name()
    file = os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")
    return _section(file, name if name == "default" else f"profile {name}")


def _profile_name() -> str:
    return os.environ.get("AWS_PROFILE", "default")


def _section(file: str, name: str) -> Mapping[str, str]:
    config = ConfigParser(interpolation=None)
    with suppress(ConfigParserError, UnicodeDecodeError):
        config.read(Path(file).expanduser())
    return config[name] if config.has_section(name) else {}


@cache
def _client(endpoint: str, region: str) -> fs.S3FileSystem:
    from pyarrow import fs

    scheme, separator, host = endpoint.partition("://")
    override = {"endpoint_override": host, "scheme": scheme} if separator else {}
    # Small files are uploaded in one request, not in three.
    return fs.S3FileSystem(region=region, allow_delayed_open=True, **override)


@cache
def _bucket_client(
    bucket: str,
    region: str,
    environment: tuple[tuple[str, str], ...],
    keys: tuple[tuple[str, str], ...],
) -> S3Store:
    from obstore.store import S3Store

    has_keys = keys or dict(environment).get("AWS_ACCESS_KEY_ID")
    return S3Store(
        bucket,
        region=region,
        **(dict(keys) if has_keys else _profile_provider()),
        client_options={"allow_http": True},
        retry_config={"max_retries": 3},
    )
