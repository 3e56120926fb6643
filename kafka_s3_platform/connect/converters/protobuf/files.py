"""Compiles Protobuf schemas from the Registry to descriptors, without generated classes.

Confluent's registry returns serialized descriptors (`format=serialized`). Apicurio's returns the registered text: a
.proto file, or the serialized descriptor in base64 that Python's serializer registers. protoc compiles a .proto file in
a separate process with limited time and memory, because anybody who may register schemas decides what it reads. No part
of a schema is on the command line of this process.
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

from kafka_s3_platform.connect.converters.base import BadRecordError
from kafka_s3_platform.core import interpreter
from kafka_s3_platform.core.errors import TransientError

MAIN = "kafka_s3_platform_main.proto"
ALL = "kafka_s3_platform_all.proto"
COMPILE_SECONDS = 60.0
COMPILE_BYTES = 512 << 20
"""Limits for protoc. Real schemas take a tenth of a second, and little more memory than protoc itself."""

PROTOC = f"""
import resource, sys
from grpc_tools import protoc
resource.setrlimit(resource.RLIMIT_AS, ({COMPILE_BYTES}, {COMPILE_BYTES}))
sys.exit(protoc.main(sys.argv))
"""

_name = re.compile(r"[^\x00-\x1f\x7f\"'\\]{1,255}")
"""A name that can stand in an import and can be a path."""

_OF_NAMES = frozenset({errno.ENAMETOOLONG, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.EINVAL, errno.EILSEQ})
"""The operating system's errors that a file's name causes. Any other error is the machine's fault."""

_imports = re.compile(r"""\bimport\s+(?:public\s+|weak\s+|option\s+)?["']([^"'\n]+)["']""")
"""Text that looks like an import, even if it is not. With no `\\s*` at the start, the time is linear in the length."""


def compile_file(text: str, references: Mapping[str, str]) -> FileDescriptor:
    """Compile the file of a schema. `references` maps the names of its imports to their texts.

    Raises:
        BadRecordError: protoc or the descriptor pool refuses the files.
        TransientError: protoc was killed.
        OSError: this machine has no space for files, or cannot start processes.
    """
    files = {**references, MAIN: text}
    parsed = {name: _parse_descriptor(name, content) for name, content in files.items()}
    sources = {name: files[name] for name, descriptor in parsed.items() if descriptor is None}
    descriptors = {name: descriptor for name, descriptor in parsed.items() if descriptor is not None}
    if sources:
        imports: set[str] = set()
        for source in sources.values():
            imports.update(_imports.findall(source))
        descriptors = _compile_sources(sources, {**_find_built_in(imports), **descriptors})
    pool = descriptor_pool.DescriptorPool()
    try:
        for descriptor in _order_files(MAIN, descriptors):
            pool.Add(descriptor)
        return pool.FindFileByName(MAIN)
    except (TypeError, KeyError, CycleError) as err:
        raise BadRecordError(f"its files do not fit together: {err}") from err


def _parse_descriptor(name: str, text: str) -> FileDescriptorProto | None:
    """Parse a descriptor in base64. Return None if the text is a .proto file."""
    try:
        descriptor = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None
    descriptor.name = name
    return descriptor


def _find_built_in(names: set[str]) -> dict[str, FileDescriptorProto]:
    """Find Google's and Confluent's own files among `names`, with their imports. No reference is needed for these."""
    built_in: dict[str, FileDescriptorProto] = {}
    for name in names:
        try:
            file = descriptor_pool.Default().FindFileByName(name)
        except KeyError:
            continue
        built_in |= _find_built_in({dependency.name for dependency in file.dependencies})
        built_in[name] = FileDescriptorProto.FromString(file.serialized_pb)
    return built_in


def _order_files(name: str, descriptors: Mapping[str, FileDescriptorProto]) -> Iterator[FileDescriptorProto]:
    """Return the files `name` needs, each one once and after all files it imports."""
    needed: dict[str, FileDescriptorProto] = {}
    names = [name]
    while names:
        file_name = names.pop()
        if file_name not in needed:
            needed[file_name] = descriptors.get(file_name) or _find_built_in({file_name})[file_name]
            names += needed[file_name].dependency
    order = TopologicalSorter({file_name: tuple(file.dependency) for file_name, file in needed.items()})
    return (needed[file_name] for file_name in order.static_order())


def _compile_sources(
    sources: Mapping[str, str], descriptors: Mapping[str, FileDescriptorProto]
) -> dict[str, FileDescriptorProto]:
    """Compile `sources` and all their imports to descriptors with protoc."""
    with tempfile.TemporaryDirectory() as made_here:
        folder, imports_path, output_path = (Path(made_here, name) for name in ("sources", "known.bin", "made.bin"))
        folder.mkdir()
        for name, source in sources.items():
            _write_source(folder, name, source)
        # The command line names only this file, because protoc could take the name of a reference for an option.
        imports = "".join(f'import "{name}";\n' for name in sources)
        Path(folder, ALL).write_text(f'syntax = "proto3";\n{imports}')
        imports_path.write_bytes(FileDescriptorSet(file=descriptors.values()).SerializeToString())
        google = Path(grpc_tools.__file__).with_name("_proto")
        options = [f"--proto_path={folder}", f"--proto_path={google}", f"--descriptor_set_in={imports_path}"]
        ran = _run_protoc([*options, "--include_imports", f"--descriptor_set_out={output_path}", ALL])
        if ran.returncode == -signal.SIGKILL:
            # The limits set for protoc end it in other ways.
            raise TransientError(
                "protoc was killed while it compiled a Protobuf schema: make sure that this machine has "
                "memory to spare, and run again"
            )
        if ran.returncode != 0:
            reason = ran.stderr.strip().replace(str(folder), "") or f"it ended with {ran.returncode}"
            raise BadRecordError(f"protoc refuses it: {reason}")
        compiled = FileDescriptorSet.FromString(output_path.read_bytes()).file
        return {file.name: file for file in compiled if file.name != ALL}


def _run_protoc(options: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run protoc with limited time and memory. Raise BadRecordError if it takes too long."""
    command = [sys.executable, "-c", PROTOC, *options]
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMPILE_SECONDS,
            cwd=interpreter.FOLDER,
            env=interpreter.build_environment(),
        )
    except subprocess.TimeoutExpired as err:
        raise BadRecordError(f"protoc has not compiled it after {COMPILE_SECONDS:g} s") from err


def _write_source(folder: Path, name: str, source: str) -> None:
    """Write a source to the file of its name. Refuse a name that, on any system, is not a file below the folder."""
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
