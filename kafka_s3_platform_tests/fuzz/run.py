"""Mutates real objects of a format and reads them, in a process of its own, until the time is over.

An input that gives a fault that none gave before is a seed from then on. Whatever is no record and no IntegrityError, a
process that ends, memory and time beyond the limits are failures: the input is kept, and the exit code is 1.

Real objects of each format, small, of which others are made.
"""

import argparse
import gzip
import hashlib
import io
import json
import lzma
import multiprocessing
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cramjam
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_s3_platform.core.codecs.compression import CompressedSink
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.envelope.avro import EnvelopeAvroWriter
from kafka_s3_platform.core.formats.envelope.json import new_json_writer
from kafka_s3_platform.core.formats.envelope.parquet import EnvelopeWriter
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform_tests.formats.records import GOLDEN_RECORDS, batch_of
from kafka_s3_platform_tests.hostile.measure import kilobytes
from kafka_s3_platform_tests.hostile.readers import READERS
from kafka_s3_platform_tests.sources import lenses

CORPUS = Path(__file__).parent / "corpus"
SECONDS, MEGABYTES, LARGEST = 10, 300, 65_536
_VARINTS = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\xff\xff\xff\xff\x0f",
    b"\xfe" + b"\xff" * 8 + b"\x01",
    b"\x80\x80\x80\x80\x10",
)


def mutated(body: bytes, other: bytes, chance: random.Random) -> bytes:
    """The object with one to eight places changed."""
    found = bytearray(body)
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        at, to = sorted(chance.randrange(len(found) + 1) for _ in range(2))
        start = chance.randrange(len(other) + 1)
        changes = (
            (at, at + 1, bytes([found[at] ^ 1 << chance.randrange(8)]) if at < len(found) else b""),
            (at, at + 1, chance.randbytes(1)),
            (at, min(to, at + 16), b""),
            (at, at, chance.choice(_VARINTS)),
            (at, at + 4, chance.choice(_VARINTS)),
            (at, at, bytes(found[at : min(to, at + 64)]) * chance.choice((1, 2, 50))),
            (at, to, other[start : start + to - at]),
        )
        begin, end, put = chance.choice(changes)
        found[begin:end] = put
    return bytes(found[:LARGEST])


def outcome(format_name: str, body: bytes) -> str:
    """The kind of fault that an object has, without its numbers; empty where it is read."""
    try:
        for batch in READERS[format_name](body):
            if reasons := getattr(batch, "bad", None):
                return "bad: " + _kind(next(iter(reasons.values())))
    except IntegrityError as err:
        return _kind(str(err))
    return ""


def _kind(text: str) -> str:
    return re.sub(r"\d+|'[^']*'|b\"[^\"]*\"", "#", text)[:80]


def _work(format_name: str, seconds: float, seed: int, at: Path, pipe: Any) -> None:
    chance, pool, known, tried = random.Random(seed), [*seeds(format_name), *corpus(format_name)], dict[str, bytes](), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        body = mutated(chance.choice(pool), chance.choice(pool), chance)
        at.write_bytes(body)
        Path("/proc/self/clear_refs").write_text("5")
        before = kilobytes("VmRSS")
        signal.alarm(SECONDS)
        kind = outcome(format_name, body)
        signal.alarm(0)
        if (grown := (kilobytes("VmHWM") - before) // 1024) > MEGABYTES:
            raise MemoryError(f"it took {grown} MB")
        tried += 1
        if kind not in known:
            known[kind] = body
            pool.append(body)
    pipe.send((tried, list(known.values())))


def corpus(format_name: str) -> list[bytes]:
    """What was kept of earlier runs."""
    return [path.read_bytes() for path in sorted((CORPUS / format_name).glob("*"))]


def main(arguments: Sequence[str]) -> int:
    """Fuzz one format, or each in turn."""
    parser = argparse.ArgumentParser(prog="kafka_s3_platform_tests.fuzz", description=__doc__)
    parser.add_argument("format", choices=[*READERS, "all"])
    parser.add_argument("--seconds", type=float, default=60, help="for each format")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="add what gave a fault of its own to the corpus")
    asked = parser.parse_args(arguments)
    return max(_fuzz(name, asked) for name in (READERS if asked.format == "all" else [asked.format]))


def _fuzz(name: str, asked: argparse.Namespace) -> int:
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    at = folder / f".tried-{asked.seed}"
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    worker = context.Process(target=_work, args=(name, asked.seconds, asked.seed, at, theirs))
    worker.start()
    theirs.close()
    answer = _answer(ours, asked.seconds + 6 * SECONDS)
    if answer is None and worker.is_alive():
        worker.kill()
    worker.join()
    if answer is None:
        kept = _keep(folder, at.read_bytes())
        sys.stdout.write(f"{name}: exit code {worker.exitcode} at {kept}\n")
    else:
        tried, found = answer
        if asked.keep:
            for body in found:
                _keep(folder, body)
        sys.stdout.write(f"{name}: {tried} objects, {len(found)} kinds of outcome\n")
    at.unlink(missing_ok=True)
    return int(answer is None)


def _answer(pipe: Any, seconds: float) -> Any:
    """What the worker sends, which it cannot do to its end while nobody takes it; None where it has died or hangs."""
    try:
        return pipe.recv() if pipe.poll(seconds) else None
    except EOFError:
        return None


def _keep(folder: Path, body: bytes) -> Path:
    path = folder / hashlib.sha256(body).hexdigest()[:16]
    path.write_bytes(body)
    return path


_RICH = {
    "type": "record",
    "name": "Rich",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "list", "type": {"type": "array", "items": "int"}},
        {"name": "map", "type": {"type": "map", "values": "double"}},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "four", "type": {"type": "fixed", "name": "F", "size": 4}},
    ],
}
_TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "v", "type": "int"}, {"name": "on", "type": {"type": "array", "items": "Tree"}}],
}
_ROWS = [
    {"n": i, "maybe": None if i % 3 else "x" * i, "list": [i] * i, "map": {"a": 0.5}, "kind": "A", "four": b"4444"}
    for i in range(9)
]
_LINES = b'{"a":[1,{"b":"\\u00e9\\n"}],"c":null}\n"text"\n-1.5e3\n[]\n' * 3
_AIVEN = b'{"key":1,"value":{"a":2},"offset":7,"timestamp":1700000000000,"headers":[{"key":"h","value":"aGk="}]}'


def seeds(format_name: str) -> list[bytes]:
    """Objects of a format of `hostile.readers`."""
    name, _, suffix = format_name.partition(".")
    if name in {"json", "bytes"}:
        return [_COMPRESSORS[suffix](_LINES)]
    return _MAKERS[format_name]()


def _compressed(body: bytes, codec: str) -> bytes:
    target = io.BytesIO()
    sink = CompressedSink(target, codec)
    sink.write(body)
    sink.close()
    return target.getvalue()


def _avro() -> list[bytes]:
    tree = {"v": 1, "on": [{"v": 2, "on": []}, {"v": 3, "on": [{"v": 4, "on": []}]}]}
    codecs = ("null", "deflate", "snappy", "bzip2", "zstandard", "xz")
    return [_container(_RICH, _ROWS, codec) for codec in codecs] + [_container(_TREE, [tree] * 3, "null")]


def _container(schema: Any, rows: Sequence[Any], codec: str) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(json.loads(json.dumps(schema))), rows, codec)
    return sink.getvalue()


def _parquet() -> list[bytes]:
    rows = [{**row, "list": row["list"] or None, "map": [("a", 0.5)]} for row in _ROWS]
    types: Mapping[str, pa.DataType] = {
        "n": pa.int64(),
        "maybe": pa.string(),
        "list": pa.list_(pa.int32()),
        "map": pa.map_(pa.string(), pa.float64()),
        "kind": pa.string(),
        "four": pa.binary(4),
    }
    table = pa.Table.from_pylist(rows, pa.schema(list(types.items())))
    found = []
    for codec, version in (("none", "1.0"), ("snappy", "1.0"), ("gzip", "2.0"), ("zstd", "2.0"), ("lz4", "1.0")):
        sink = io.BytesIO()
        pq.write_table(table, sink, compression=codec, data_page_version=version, row_group_size=5)
        found.append(sink.getvalue())
    return found


def _envelope(writer: Any, **options: Any) -> list[bytes]:
    sink = io.BytesIO()
    made = writer(sink, **options)
    made.write(ConnectBatch.of(batch_of(GOLDEN_RECORDS)))
    made.close({})
    return [sink.getvalue()]


def _block_gzip() -> list[bytes]:
    members = [gzip.compress(b"one\ntwo\n"), gzip.compress(b"three\n")]
    at, chunks = 0, []
    for offset, (member, count) in enumerate(zip(members, (2, 1), strict=True)):
        sizes = {"byte_length_uncompressed": 8, "num_records": count, "byte_length": len(member), "byte_offset": at}
        chunks.append({**sizes, "first_record_offset": 2 * offset})
        at += len(member)
    return [json.dumps({"chunks": chunks}).encode() + b"\n" + b"".join(members)]


_COMPRESSORS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gz": partial(_compressed, codec="gzip"),
    "bz2": partial(_compressed, codec="bzip2"),
    "zst": partial(_compressed, codec="zstd"),
    "xz": lzma.compress,
    "lz4": lambda body: bytes(cramjam.lz4.compress(body)),
    "snappy": lambda body: bytes(cramjam.snappy.compress(body)),
}

_MAKERS: Mapping[str, Callable[[], list[bytes]]] = {
    "avro": _avro,
    "parquet": _parquet,
    "length": lambda: [b"\0\0\0\3one\0\0\0\0\0\0\0\5three" * 3],
    "block_gzip": _block_gzip,
    "envelope.parquet": lambda: _envelope(EnvelopeWriter),
    "envelope.avro": lambda: _envelope(EnvelopeAvroWriter, codec="null") + _envelope(EnvelopeAvroWriter, codec="zstd"),
    "envelope.json": lambda: _envelope(new_json_writer, codec="none") + _envelope(new_json_writer, codec="gzip"),
    "lenses.json": lambda: [lenses.LINES],
    "lenses.avro": lambda: [lenses.avro(lenses.FIELDS, [lenses.record(n) for n in range(5)])],
    "lenses.parquet": lambda: [lenses.parquet([lenses.record(n) for n in range(5)])],
    "aiven.csv": lambda: [b"a2V5,dmFsdWU=,7,2023-11-14T22:13:20Z,aA==:aGk=;aQ==:\n" * 3],
    "aiven.jsonl": lambda: [(_AIVEN + b"\n") * 3],
    "aiven.json": lambda: [b"[\n" + _AIVEN + b",\n" + _AIVEN + b"\n]"],
    "aiven.avro": _avro,
    "aiven.parquet": _parquet,
}
