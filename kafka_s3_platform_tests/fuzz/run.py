"""Mutates real objects of a format and reads them, in a process of its own, until the time is over.

An input that gives a fault that none gave before is a seed from then on. Whatever is no record and no IntegrityError, a
process that ends, memory and time beyond the limits are failures: the input is kept, and the exit code is 1.
"""

import argparse
import hashlib
import multiprocessing
import random
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform_tests.fuzz.seeds import seeds
from kafka_s3_platform_tests.hostile.measure import kilobytes
from kafka_s3_platform_tests.hostile.readers import READERS

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
