"""Every form of a string is found in every kind of file, and nothing where it is not."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.erasure import encodings, readable
from retention.erasure import needles as needles_module
from retention.erasure import search as search_module
from retention.erasure.needles import Needles, needles_of_rows
from retention.erasure.readable import PIECE_BYTES
from retention.erasure.search import Finding, search
from tests.support.erasing import CONTAINERS, WRITTEN

SUBJECT = 'kunde.Zo\u00eb/"Stra\u00dfe" <7>?~\u00bf\u00ff.\U0001f600>>>???.bestellt'
COMPRESSIBLE = b"".join(
    (*(SUBJECT[at : at + 9].encode() + b"#" for at in range(0, 63, 9)), SUBJECT.encode(), bytes(99))
)
"""The string after its parts, so that no compression has it in one piece."""
OTHER = SUBJECT.replace("7", "8")


def needles_of(*subjects: str, survivors: Iterable[str] = ()) -> Needles:
    removed = pa.table({"subject": [*subjects]})
    return needles_of_rows([removed]).without([pa.table({"subject": [*survivors]})])


def lay(directory: Path, contents: dict[str, bytes]) -> None:
    for name, content in contents.items():
        (directory / name).write_bytes(content)


def files_with(findings: Iterable[Finding]) -> set[str]:
    return {Path(finding.location).name for finding in findings}


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_form_is_found_in_every_kind_of_file(container: str, tmp_path: Path) -> None:
    hide = CONTAINERS[container]
    lay(tmp_path, {form: hide(write(SUBJECT)) for form, write in WRITTEN.items()})
    result = search([str(tmp_path)], needles_of(SUBJECT))
    assert files_with(result.findings) == {*WRITTEN}
    assert result.undecodable == ()
    assert {finding.kind for finding in result.findings} == {"subject"}


@pytest.mark.parametrize("container", CONTAINERS)
def test_what_is_not_there_is_not_found(container: str, tmp_path: Path) -> None:
    hide = CONTAINERS[container]
    lay(tmp_path, {form: hide(write(OTHER)) for form, write in WRITTEN.items()})
    assert search([str(tmp_path)], needles_of(SUBJECT, survivors=[OTHER])).findings == ()


@pytest.mark.parametrize("number", range(len(encodings.FORMS)))
def test_no_form_can_be_left_out(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(tmp_path, {form: write(SUBJECT) for form, write in WRITTEN.items()})
    without = encodings.FORMS[:number] + encodings.FORMS[number + 1 :]
    monkeypatch.setattr(needles_module, "FORMS", without)
    assert files_with(search([str(tmp_path)], needles_of(SUBJECT)).findings) < {*WRITTEN}


@pytest.mark.parametrize("escapes", encodings.ESCAPES, ids=lambda escapes: escapes.name)
def test_no_escapes_can_be_left_as_they_are(
    escapes: encodings.Escapes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(tmp_path, {form: write(SUBJECT) for form, write in WRITTEN.items()})
    rest = tuple(each for each in encodings.ESCAPES if each is not escapes)
    monkeypatch.setattr(encodings, "ESCAPES", rest)
    assert files_with(search([str(tmp_path)], needles_of(SUBJECT)).findings) < {*WRITTEN}


@pytest.mark.parametrize("number", range(len(readable._CONTAINERS)))
def test_no_container_can_be_left_as_it_is(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = {name: hide(COMPRESSIBLE) for name, hide in CONTAINERS.items()}
    packed["snappy"] = packed["s2"]
    packed["s2"] = packed["s2"].replace(b"sNaPpY", b"S2sTwO")
    packed["tar"] = CONTAINERS["tar"](gzip.compress(COMPRESSIBLE))
    lay(tmp_path, packed)
    assert files_with(search([str(tmp_path)], needles_of(SUBJECT)).findings) == {*packed}
    rest = readable._CONTAINERS[:number] + readable._CONTAINERS[number + 1 :]
    monkeypatch.setattr(readable, "_CONTAINERS", rest)
    assert files_with(search([str(tmp_path)], needles_of(SUBJECT)).findings) < {*packed}


@pytest.mark.parametrize("form", WRITTEN)
def test_a_string_across_two_pieces_is_found(form: str, tmp_path: Path) -> None:
    written = WRITTEN[form](SUBJECT)
    for cut in (1, len(written) // 3, len(written) // 2, len(written) - 1):
        content = b"." * (PIECE_BYTES - cut) + written + b"." * 99
        (tmp_path / "file").write_bytes(content)
        assert search([str(tmp_path)], needles_of(SUBJECT)).findings, (form, cut)


def test_the_place_of_a_finding_is_exact(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 3_000_001 + SUBJECT.encode())
    (finding,) = search([str(tmp_path)], needles_of(SUBJECT)).findings
    expected = Finding(str(tmp_path / "file"), "subject", "raw", "bytes", 3_000_001)
    assert finding == expected


def test_names_of_files_and_of_directories_are_searched(tmp_path: Path) -> None:
    directory = tmp_path / "subject=customer.0000000017"
    directory.mkdir()
    (directory / "empty").touch()
    (finding,) = search([str(tmp_path)], needles_of("customer.0000000017")).findings
    assert (finding.view, finding.offset) == ("path", 8)


def test_a_file_that_cannot_be_decoded_is_listed_and_searched_as_it_is(tmp_path: Path) -> None:
    packed = {
        name: hide(SUBJECT.encode() * 50)
        for name, hide in CONTAINERS.items()
        if name in ("gzip", "zstd", "lz4", "bz2", "xz", "s2", "zip", "parquet-zstd", "tar-of-gz")
    }
    cut = {name: content[: len(content) - 13] for name, content in packed.items()}
    cut["tar-of-gz"] = CONTAINERS["tar"](packed["gzip"][:-13])
    lay(tmp_path, {name: content + SUBJECT.encode() for name, content in cut.items()})
    result = search([str(tmp_path)], needles_of(SUBJECT))
    assert {Path(location).name for location in result.undecodable} == {*packed}
    assert files_with(each for each in result.findings if each.view == "bytes") == {*packed}


def test_a_damaged_member_hides_no_other_member(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "archive", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.gz", gzip.compress(b"text")[:-3])
        archive.writestr("b", SUBJECT)
    result = search([str(tmp_path)], needles_of(SUBJECT))
    assert [finding.view for finding in result.findings] == ["zip:b"]
    assert result.undecodable == (str(tmp_path / "archive"),)


def test_a_container_too_long_to_be_kept_is_searched_as_it_is_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readable, "MAX_NESTED_BYTES", 100)
    content = gzip.compress(COMPRESSIBLE) + bytes(2 * PIECE_BYTES) + SUBJECT.encode()
    lay(tmp_path, {"file": gzip.compress(content), "short": gzip.compress(COMPRESSIBLE)})
    result = search([str(tmp_path)], needles_of(SUBJECT))
    assert result.undecodable == (str(tmp_path / "file"),)
    assert files_with(result.findings) == {"file", "short"}


def test_what_is_spared_is_not_read(tmp_path: Path) -> None:
    lay(tmp_path, {"file": SUBJECT.encode(), "file2": SUBJECT.encode()})
    (tmp_path / "directory").mkdir()
    lay(tmp_path / "directory", {"file": SUBJECT.encode()})
    spared = [str(tmp_path / "file"), str(tmp_path / "directory")]
    result = search([str(tmp_path)], needles_of(SUBJECT), spared=spared)
    assert files_with(result.findings) == {"file2"}
    assert result.files == 1


def test_a_file_is_a_place_of_its_own(tmp_path: Path) -> None:
    lay(tmp_path, {"file": SUBJECT.encode(), "other": SUBJECT.encode()})
    result = search([str(tmp_path / "file"), str(tmp_path / "missing")], needles_of(SUBJECT))
    assert (files_with(result.findings), result.files) == ({"file"}, 1)


def test_links_to_directories_are_followed_once(tmp_path: Path) -> None:
    stream, table = tmp_path / "streams" / "A%2E", tmp_path / "streams" / ".tables" / "A=2E"
    for directory in (stream, table):
        directory.mkdir(parents=True)
    (stream / "messages").symlink_to(Path("..", ".tables", "A=2E"), target_is_directory=True)
    (table / "back").symlink_to(stream, target_is_directory=True)
    lay(table, {"data": SUBJECT.encode()})
    result = search([str(stream)], needles_of(SUBJECT))
    assert (files_with(result.findings), result.files) == ({"data"}, 1)
    assert search([str(tmp_path)], needles_of(SUBJECT)).files == 1


def test_bytes_are_counted(tmp_path: Path) -> None:
    lay(tmp_path, {"plain": bytes(100), "packed": gzip.compress(bytes(5_000))})
    result = search([str(tmp_path)], needles_of(SUBJECT))
    assert result.is_clean
    packed = (tmp_path / "packed").stat().st_size
    assert (result.files, result.bytes_raw, result.bytes_decoded) == (2, 100 + packed, 5_000)


def test_more_needles_than_an_index_holds_take_more_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects = [f"customer.{number:010}" for number in range(100)]
    lay(tmp_path, {subject[-4:]: b"x" + subject.encode() for subject in subjects[::7]})
    monkeypatch.setattr(search_module, "MAX_WINDOWS", 30 * len(encodings.FORMS))
    result = search([str(tmp_path)], needles_of(*subjects))
    assert files_with(result.findings) == {subject[-4:] for subject in subjects[::7]}
    assert result.files == len(subjects[::7])


def test_no_needle_means_nothing_found(tmp_path: Path) -> None:
    lay(tmp_path, {"file": SUBJECT.encode()})
    assert search([str(tmp_path)], needles_of("short")).is_clean


@pytest.mark.parametrize("compression", ["none", "zstd", "snappy"])
def test_a_file_without_rows_is_decoded(compression: str, tmp_path: Path) -> None:
    table = pa.table({"text": pa.array([], pa.string()), "number": pa.array([], pa.int64())})
    pq.write_table(table, tmp_path / "empty.parquet", compression=compression)
    assert search([str(tmp_path)], needles_of(SUBJECT)).undecodable == ()
