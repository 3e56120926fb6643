"""Protobuf schemas as the Registry gives them, made into descriptors without generated classes.

Confluent's registry gives serialized descriptors (`format=serialized`), Apicurio's the text that was registered, which
is a .proto file or, from Python's serializer, a serialized descriptor in base64. A .proto file is compiled by protoc.
"""

import base64
import binascii
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import confluent_kafka.schema_registry.protobuf  # noqa: F401 - its imports fill the default pool
import grpc_tools
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from kafka_s3_platform.converters.base import BadRecordError

MAIN = "kafka_s3_platform_main.proto"
COMPILE_SECONDS = 60.0
_imports = re.compile(r'^\s*import\s+(?:public\s+|weak\s+|option\s+)?"([^"]+)"', re.MULTILINE)


def main_file(text: str, references: Mapping[str, str]) -> FileDescriptor:
    """The file of a schema and of those that it imports, by the names that it has for them.

    Raises:
        BadRecordError: protoc, or the pool of descriptors, refuses them.
    """
    files = {**references, MAIN: text}
    given = {name: _serialized(name, each) for name, each in files.items()}
    sources = {name: files[name] for name, descriptor in given.items() if descriptor is None}
    descriptors = {name: descriptor for name, descriptor in given.items() if descriptor is not None}
    if sources:
        wanted = {name for source in sources.values() for name in _imports.findall(source)}
        descriptors = _compiled(sources, {**_built_in(wanted), **descriptors})
    pool = descriptor_pool.DescriptorPool()
    try:
        for descriptor in _in_order(MAIN, descriptors):
            pool.Add(descriptor)
        return pool.FindFileByName(MAIN)
    except (TypeError, KeyError) as err:
        raise BadRecordError(f"its files do not fit together: {err}") from err


def _serialized(name: str, text: str) -> FileDescriptorProto | None:
    """The descriptor in base64, None if the text is a .proto file."""
    try:
        descriptor = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None
    descriptor.name = name
    return descriptor


def _built_in(names: set[str]) -> dict[str, FileDescriptorProto]:
    """Of these files those that need no reference, with what they import: Google's and Confluent's own types."""
    found: dict[str, FileDescriptorProto] = {}
    for name in names:
        try:
            file = descriptor_pool.Default().FindFileByName(name)
        except KeyError:
            continue
        found |= _built_in({other.name for other in file.dependencies})
        found[name] = FileDescriptorProto.FromString(file.serialized_pb)
    return found


def _in_order(name: str, known: Mapping[str, FileDescriptorProto]) -> Iterator[FileDescriptorProto]:
    """A file behind those that it imports, each once."""
    done: set[str] = set()

    def visit(each: str) -> Iterator[FileDescriptorProto]:
        if each in done:
            return
        done.add(each)
        descriptor = known.get(each) or _built_in({each})[each]
        for other in descriptor.dependency:
            yield from visit(other)
        yield descriptor

    return visit(name)


def _compiled(
    sources: Mapping[str, str], descriptors: Mapping[str, FileDescriptorProto]
) -> dict[str, FileDescriptorProto]:
    """Descriptors by protoc of `sources` and of all that they import."""
    with tempfile.TemporaryDirectory() as folder:
        for name, source in sources.items():
            _write(Path(folder), name, source)
        known, made = Path(folder, "known.bin"), Path(folder, "made.bin")
        known.write_bytes(FileDescriptorSet(file=descriptors.values()).SerializeToString())
        google = Path(grpc_tools.__file__).with_name("_proto")
        options = [f"--proto_path={folder}", f"--proto_path={google}", f"--descriptor_set_in={known}"]
        command = [sys.executable, "-m", "grpc_tools.protoc", *options, "--include_imports"]
        ran = subprocess.run(
            [*command, f"--descriptor_set_out={made}", *sources],
            capture_output=True, text=True, check=False, timeout=COMPILE_SECONDS,
        )  # fmt: skip
        if ran.returncode != 0:
            raise BadRecordError(f"protoc refuses it: {ran.stderr.strip().replace(folder, '')}")
        return {file.name: file for file in FileDescriptorSet.FromString(made.read_bytes()).file}


def _write(folder: Path, name: str, source: str) -> None:
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise BadRecordError(f"its reference {name!r} is no name of a file below a folder")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
