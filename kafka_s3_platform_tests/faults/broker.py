"""A Kafka of a test's own, which may be killed."""

import psutil

from kafka_s3_platform.local.settings import StackSettings


def kill_broker(settings: StackSettings) -> None:
    """SIGKILL, as a crash of its machine."""
    [broker] = [p for p in psutil.process_iter(["cmdline"]) if is_broker(p, settings)]
    broker.kill()
    broker.wait(30)


def is_broker(process: psutil.Process, settings: StackSettings) -> bool:
    line = process.info["cmdline"] or []
    return "java" in "".join(line[:1]) and any(str(settings.data_dir) in part for part in line)
