"""Protobuf schemas of strangers: they become descriptors or are refused, and nothing else happens."""

import base64
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kafka_s3_platform.connect.converters.base import BadRecordError
from kafka_s3_platform.connect.converters.protobuf import files as protobuf_files
from kafka_s3_platform.connect.converters.protobuf.files import compile_file
from kafka_s3_platform.core.errors import TransientError

MESSAGE = 'syntax = "proto3"; message Order { int32 id = 1; }'
EMPTY = 'syntax = "proto3";'


def importing(*names: str) -> str:
    return EMPTY + "".join(f'import "{name}";' for name in names)


def serialized(*imports: str) -> str:
    file = FileDescriptorProto(name="any", syntax="proto3", dependency=imports)
    return base64.b64encode(file.SerializeToString()).decode()


def test_imports_are_looked_for_in_time_that_grows_with_the_text() -> None:
    """Each of a megabyte of empty lines was looked at from each line before it: an hour, and no bound of protoc's."""
    start = time.monotonic()
    compile_file(f"{EMPTY}{chr(10) * 300_000}message Order {{}}", {})
    compile_file(f"{EMPTY}// {'import ' * 40_000}\nmessage Order {{}}", {})
    assert time.monotonic() - start < 20


def test_an_import_may_stand_behind_something_else() -> None:
    text = f"{EMPTY} import 'confluent/type/decimal.proto'; message Order {{ confluent.type.Decimal price = 1; }}"
    assert compile_file(text, {}).message_types_by_name.keys() == ["Order"]


@pytest.mark.parametrize("name", ["a.proto", "shop/v1/a b.proto", "größe.proto", "@a", "-a", "--version"])
def test_a_reference_of_any_usual_name_is_found(name: str) -> None:
    used = 'syntax = "proto3"; message Used {}'
    file = compile_file(importing(name) + "message Order { Used used = 1; }", {name: used})
    assert file.message_types_by_name["Order"].fields_by_name["used"].message_type.file.name == name


def test_the_names_of_references_are_no_options_of_protoc(tmp_path: Path) -> None:
    program, ran, written = tmp_path / "program", tmp_path / "ran", tmp_path / "written"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    written.mkdir()
    names = (f"--plugin=protoc-gen-x={program}", f"--x_out={tmp_path}", f"--python_out={written}", f"@{program}")
    for name in names:
        assert compile_file(MESSAGE, {name: EMPTY}).message_types_by_name.keys() == ["Order"]
    compile_file(MESSAGE, dict.fromkeys(names, EMPTY))
    assert not ran.exists()
    assert list(written.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "../a.proto", "/etc/a.proto", "a/../../b", ".", "..", "", "a//b", "a/./b", "a\0b", "a\nb",
        'a";import "b', "a\\b", "a" * 256, "a/" * 500 + "b", "kafka_s3_platform_all.proto", "\ud800",
    ],
)  # fmt: skip
def test_a_reference_that_is_no_name_of_a_file_below_a_folder_is_refused(name: str) -> None:
    with pytest.raises(BadRecordError, match="its reference '"):
        compile_file(MESSAGE, {name: EMPTY})


def test_a_reference_in_the_folder_of_another_ones_name_is_refused() -> None:
    with pytest.raises(BadRecordError, match="its reference 'a/b' cannot be a file beside the others"):
        compile_file(MESSAGE, {"a": EMPTY, "a/b": EMPTY})


def test_a_machine_without_room_for_files_is_no_fault_of_the_schema() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            compile_file(MESSAGE, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_compiler_that_was_killed_says_nothing_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_files, "PROTOC", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(TransientError, match="was killed"):
        compile_file(MESSAGE, {})


def test_the_compiler_runs_no_module_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("resource", "grpc_tools"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('a module of the working directory was run')")
    monkeypatch.chdir(tmp_path)
    assert compile_file(MESSAGE, {}).message_types_by_name["Order"].fields_by_name["id"].number == 1


def test_the_compiler_knows_no_secret_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "marked-secret")
    monkeypatch.setattr(protobuf_files, "PROTOC", "import os, sys; sys.exit(str(dict(os.environ)))")
    with pytest.raises(BadRecordError, match="PYTHONPATH") as refused:
        compile_file(MESSAGE, {})
    assert "marked-secret" not in str(refused.value)


def test_no_file_of_this_machine_can_be_imported(tmp_path: Path) -> None:
    secret = tmp_path / "secret.proto"
    secret.write_text('syntax = "proto3"; message Secret {}')
    for name in (str(secret), f"../../../../../..{secret}", f"./{secret}"):
        with pytest.raises(BadRecordError) as refused:
            compile_file(importing(name) + "message Order { Secret secret = 1; }", {})
        assert "message Secret" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        EMPTY + "message M {" * 5000 + "}" * 5000,
        EMPTY + "message M {" + "".join(f"int32 f{n} = {n};" for n in range(1, 100_000)) + "}",
        EMPTY + "option (x) = " + "{ a: " * 50_000 + "1" + "}" * 50_000 + ";",
        "message",
        "\ud800",
    ],
    ids=["deep", "wide", "deep option", "no schema", "no text"],
)
def test_a_schema_that_protoc_cannot_take_is_refused(text: str) -> None:
    with pytest.raises(BadRecordError):
        compile_file(text, {})


@pytest.mark.parametrize("made", [importing, serialized])
def test_files_that_import_each_other_are_refused(made: Callable[..., str]) -> None:
    with pytest.raises(BadRecordError):
        compile_file(importing("a.proto"), {"a.proto": made("b.proto"), "b.proto": made("a.proto")})


@pytest.mark.parametrize("made", [importing, serialized])
def test_many_files_that_import_one_another_in_a_row_are_found(made: Callable[..., str]) -> None:
    references = {f"{n}.proto": made(f"{n + 1}.proto") for n in range(2000)}
    assert compile_file(importing("0.proto") + MESSAGE.removeprefix(EMPTY), {**references, "2000.proto": EMPTY})


def test_a_schema_that_takes_too_long_or_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(protobuf_files, "COMPILE_SECONDS", 0.001)
        with pytest.raises(BadRecordError, match=r"protoc has not compiled it after 0\.001 s"):
            compile_file(MESSAGE, {})
    many = "".join(f"message M{n} {{ string a = 1; string b = 2; string c = 3; }}" for n in range(300_000))
    with pytest.raises(BadRecordError, match="protoc refuses it"):
        compile_file(EMPTY + many, {})
