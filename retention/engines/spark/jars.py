"""JARs that Spark lacks, for Delta and S3: their versions, their location, and their download."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from struct import pack

from retention.engines.spark.java import launch_environment, machine_java, shared_folder
from retention.engines.spark.versions import companions_of, delta_of, installed_spark
from retention.errors import UsageError

_SDK_PARTS = ("s3", "s3-transfer-manager", "sts", "netty-nio-client", "apache-client")
"""Parts of the AWS SDK that S3A uses: 15 MB instead of its 600 MB bundle."""
_SPARKS_OWN = (
    *("org.slf4j:slf4j-api", "org.apache.logging.log4j:log4j-api"),
    *(
        f"io.netty:netty-{part}"
        for part in (
            *("buffer", "codec", "codec-http", "codec-http2", "common", "handler", "resolver"),
            *("transport", "transport-classes-epoll", "transport-native-unix-common"),
        )
    ),
)
"""Dependencies of the SDK that Spark provides."""


def delta_jars() -> list[Path]:
    """Delta's JARs for the installed Spark, resolved by `make setup`, sorted.

    Raises:
        UsageError: they are missing, or no Delta version is known for the installed Spark.
    """
    artifact, version = delta_of(installed_spark())
    folder = _jar_folder(artifact, version)
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise UsageError(
            f"Delta {version} for Spark is not in {folder}: run `make setup` (or "
            f"`{sys.executable} -m retention.engines.spark.jars`) while connected."
        )
    return jars


def s3a_jars() -> list[Path]:
    """The JARs for S3 access of Spark's JVM, sorted; none if `make setup` could not download them."""
    with suppress(UsageError):
        hadoop = companions_of(installed_spark()).hadoop
        return sorted(_jar_folder("hadoop-aws", hadoop).glob("*.jar"))
    return []


def fetch_delta_jars() -> list[Path]:
    """Resolve Delta's JARs with Spark's own resolver, once; later calls only list them.

    Raises:
        UsageError: Java is missing, or the repository could not be reached.
    """
    artifact, version = delta_of(installed_spark())
    _fetch(_jar_folder(artifact, version), [f"io.delta:{artifact}:{version}"], [])
    return delta_jars()


def fetch_s3a_jars() -> list[Path]:
    """Resolve the JARs for S3 with Spark's own resolver, once; later calls only list them.

    Raises:
        UsageError: Java is missing, or the repository could not be reached.
    """
    known = companions_of(installed_spark())
    parts = [f"software.amazon.awssdk:{part}:{known.sdk}" for part in _SDK_PARTS]
    wanted = [f"org.apache.hadoop:hadoop-aws:{known.hadoop}", *parts]
    _fetch(
        _jar_folder("hadoop-aws", known.hadoop),
        wanted,
        ["software.amazon.awssdk:bundle", *_SPARKS_OWN],
    )
    return s3a_jars()


def _fetch(folder: Path, wanted: list[str], unwanted: list[str]) -> None:
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        _resolve(wanted, unwanted, Path(scratch))
        Path(scratch, "jars").rename(folder)


def _resolve(wanted: list[str], unwanted: list[str], ivy: Path) -> None:
    """Download coordinates into `ivy/jars` by running an empty script with spark-submit."""
    nothing = ivy / "nothing.py"
    nothing.touch()
    environment = os.environ | launch_environment()
    command = [
        *(f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", "local[1]"),
        *("--packages", ",".join(wanted)),
        *(("--exclude-packages", ",".join(unwanted)) if unwanted else ()),
        *("--conf", f"spark.jars.ivy={ivy}"),
        *(*_trust(ivy / "trusted.jks"), str(nothing)),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0 or not (ivy / "jars").is_dir():
        log = shared_folder() / "delta-jars.log"
        log.write_text(done.stdout + done.stderr, encoding="utf-8")
        raise UsageError(
            f"{wanted[0]} could not be fetched from the Maven repository (its words are in {log}): "
            "connect, or name a mirror in DEFAULT_ARTIFACT_REPOSITORY, and run `make setup` again."
        )


def _trust(file: Path) -> list[str]:
    """Options that make a packaged Java trust Python's certificates; it lacks the machine's own authorities.

    A Java of the machine is not changed, because its administrator configures it. `file` becomes a Java key store (JKS
    version 2: per certificate a tag, a name, a time, a type and its bytes), read without its digest.
    """
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if machine_java() is not None or not certificates:
        return []
    entries = (
        pack(">iH", 2, len(str(number)))
        + str(number).encode()
        + pack(">qH", 0, 5)
        + b"X.509"
        + pack(">i", len(der))
        + der
        for number, der in enumerate(certificates)
    )
    file.write_bytes(pack(">Iii", 0xFEEDFEED, 2, len(certificates)) + b"".join(entries) + bytes(20))
    return [
        "--driver-java-options",
        f"-Djavax.net.ssl.trustStore={file} -Djavax.net.ssl.trustStoreType=JKS",
    ]


def _jar_folder(artifact: str, version: str) -> Path:
    return shared_folder() / f"{artifact}-{version}"


if __name__ == "__main__":
    try:
        for fetched in (fetch_delta_jars(), fetch_s3a_jars()):
            sys.stdout.write(f"{len(fetched)} JARs in {fetched[0].parent}\n")
    except UsageError as error:
        sys.exit(str(error))
