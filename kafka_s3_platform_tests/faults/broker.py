"""A Kafka that may be killed, and what its log loses then."""

import os
from pathlib import Path

import psutil

from kafka_s3_platform.kafka.fetch.log_batches import parse_batches
from kafka_s3_platform.local import stack as embedded
from kafka_s3_platform.local.broker import Broker
from kafka_s3_platform.local.settings import StackSettings

HEADER_BYTES = 61


def start_broker(settings: StackSettings) -> None:
    """Start it if it does not run, and wait until it answers. The stack's other servers are not needed."""
    embedded.start_servers((Broker(settings),))


def kill_broker(settings: StackSettings) -> None:
    """SIGKILL, as a crash of its machine."""
    [broker] = [p for p in psutil.process_iter(["cmdline"]) if is_broker(p, settings)]
    broker.kill()
    broker.wait(30)


def is_broker(process: psutil.Process, settings: StackSettings) -> bool:
    line = process.info["cmdline"] or []
    return "java" in "".join(line[:1]) and any(str(settings.data_dir) in part for part in line)


def cut_log(settings: StackSettings, topic: str, offset: int) -> None:
    """Take the batches from `offset` on out of the log of kafka partition 0 of a killed broker.

    It then begins anew there, in another leader epoch: as a replica does that lagged behind and is elected uncleanly.
    """
    folder = settings.data_dir / "kafka" / "data" / f"{topic}-0"
    for log in folder.glob("*.log"):
        kept = [b for b in parse_batches(memoryview(log.read_bytes())) if b.last_offset < offset]
        os.truncate(log, sum(len(b.body) + HEADER_BYTES for b in kept))
        if not kept and int(log.stem):
            log.unlink()
    _forget_indexes(folder)


def lose_end(settings: StackSettings, group: str) -> None:
    """Take the end of the last transaction that committed an offset of `group` out of the log of a killed broker.

    Only where the group's offsets are kept; other kafka partitions of the transaction keep theirs.
    """
    name = group.encode()
    logs = (settings.data_dir / "kafka" / "data").glob("__consumer_offsets-*/*.log")
    [log] = [path for path in logs if name in path.read_bytes()]
    raw = log.read_bytes()
    batches = list(parse_batches(memoryview(raw)))
    [*_, writer] = [b.producer_id for b in batches if b.is_transactional and name in bytes(b.body)]
    [*_, end] = [n for n, b in enumerate(batches) if b.is_control and b.producer_id == writer]
    place = sum(len(b.body) + HEADER_BYTES for b in batches[:end])
    log.write_bytes(raw[:place] + raw[place + len(batches[end].body) + HEADER_BYTES :])
    _forget_indexes(log.parent)


def _forget_indexes(folder: Path) -> None:
    """The broker makes them anew when it starts."""
    for other in folder.iterdir():
        if other.suffix in {".index", ".timeindex", ".txnindex", ".snapshot"}:
            other.unlink()
