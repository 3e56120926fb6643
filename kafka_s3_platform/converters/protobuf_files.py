"""Protobuf schemas as the Registry gives them, made into descriptors without generated classes.

Confluent's registry gives serialized descriptors (`format=serialized`), Apicurio's the text that was registered, which
is a .proto file or, from Python's serializer, a serialized descriptor in base64. A .proto file is compiled by protoc,
in a process of its own with bounds on time and memory: whoever may register a schema decides what it gets to read.
Nothing of a schema reaches that process's command line.
"""

import base64
import binascii
import errno
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import confluent_kafka.schema_registry.protobuf  # noqa: F401 - its imports fill the default pool
import grpc_tools
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from kafka_s3_platform.converters.base import BadRecordError
from kafka_s3_platform.errors import TransientError

MAIN, ALL = "kafka_s3_platform_main.proto", "kafka_s3_platform_all.proto"
COMPILE_SECONDS, COMPILE_BYTES = 60.0, 512 << 20
"""Real schemas take a tenth of a second, and not much more memory than protoc itself."""

PROTOC = f"""
import resource, sys
from grpc_tools import protoc
resource.setrlimit(resource.RLIMIT_AS, ({COMPILE_BYTES}, {COMPILE_BYTES}))
sys.exit(protoc.main(sys.argv))
"""

_name = re.compile(r"[^\x00-\x1f\x7f\"'\\]{1,255}")
"""What may stand in an import, and be a path."""

_OF_NAMES = frozenset({errno.ENAMETOOLONG, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.EINVAL, errno.EILSEQ})
"""What the operating system says of names; all else it says of itself."""

_imports = re.compile(r"""\bimport\s+(?:public\s+|weak\s+|option\s+)?["']([^"'\n]+)["']""")
"""What looks like an import, also where it is none. In time that grows with the text: no `\\s*` begins it."""


def main_file(text: str, references: Mapping[str, str]) -> FileDescriptor:
    """The file of a schema and of those that it imports, by the names that it has for them.

    Raises:
        BadRecordError: protoc, or the pool of descriptors, refuses them.
        TransientError: protoc was killed.
        OSError: this machine has no room for files, or processes.
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
    except (TypeError, KeyError, CycleError) as err:
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
    found: dict[str, FileDescriptorProto] = {}
    wanted = [name]
    while wanted:
        each = wanted.pop()
        if each not in found:
            found[each] = known.get(each) or _built_in({each})[each]
            wanted += found[each].dependency
    order = TopologicalSorter({each: tuple(file.dependency) for each, file in found.items()})
    return (found[each] for each in order.static_order())


def _compiled(
    sources: Mapping[str, str], descriptors: Mapping[str, FileDescriptorProto]
) -> dict[str, FileDescriptorProto]:
    """Descriptors by protoc of `sources` and of all that they import."""
    with tempfile.TemporaryDirectory() as made_here:
        folder, known, made = (Path(made_here, name) for name in ("sources", "known.bin", "made.bin"))
        folder.mkdir()
        for name, source in sources.items():
            _write(folder, name, source)
        # Only this file is named on the command line: a reference's name would be taken for an option.
        imports = "".join(f'import "{name}";\n' for name in sources)
        Path(folder, ALL).write_text(f'syntax = "proto3";\n{imports}')
        known.write_bytes(FileDescriptorSet(file=descriptors.values()).SerializeToString())
        google = Path(grpc_tools.__file__).with_name("_proto")
        options = [f"--proto_path={folder}", f"--proto_path={google}", f"--descriptor_set_in={known}"]
        ran = _run([*options, "--include_imports", f"--descriptor_set_out={made}", ALL])
        if ran.returncode == -signal.SIGKILL:
            # Its own bounds end it otherwise.
            raise TransientError(
                "protoc was killed while it compiled a Protobuf schema: make sure that this machine has "
                "memory to spare, and run again"
            )
        if ran.returncode != 0:
            said = ran.stderr.strip().replace(str(folder), "") or f"it ended with {ran.returncode}"
            raise BadRecordError(f"protoc refuses it: {said}")
        compiled = FileDescriptorSet.FromString(made.read_bytes()).file
        return {file.name: file for file in compiled if file.name != ALL}


def _run(options: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", PROTOC, *options]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMPILE_SECONDS)
    except subprocess.TimeoutExpired as err:
        raise BadRecordError(f"protoc has not compiled it after {COMPILE_SECONDS:g} s") from err


def _write(folder: Path, name: str, source: str) -> None:
    """Write a source under its name, if that is one of a file below the folder, in any operating system's eyes."""
    parts = name.split("/")
    if not _name.fullmatch(name) or not {"", ".", ".."}.isdisjoint(parts) or name == ALL:
        raise BadRecordError(f"its reference {name!r} is no name of a file below a folder")
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    except (OSError, UnicodeEncodeError) as err:
        if isinstance(err, OSError) and err.errno not in _OF_NAMES:
            raise
        raise BadRecordError(f"its reference {name!r} cannot be a file beside the others: {err}") from err
