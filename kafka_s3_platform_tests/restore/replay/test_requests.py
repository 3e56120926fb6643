"""Which requests a restore makes: of an archive however long, only those of the objects that it needs."""

from datetime import timedelta

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform_tests.restore.own import Archive, restored
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, snapshot, watch_s3

HOURS, KAFKA_PARTITIONS, EACH = 48, 2, 3
PICKED = NOON + 30 * HOUR

Requests = list[tuple[str, str]]
"""S3's operations, each with the key or prefix that it names."""


@pytest.fixture
def config(shared_archive: Archive) -> ConnectorConfig:
    """An archive of two days: an object for each hour and kafka partition."""
    sent = [
        Sent(b"%d/%d" % (hour, n), timestamp=NOON + hour * HOUR + n * timedelta(minutes=20), kafka_partition=p)
        for hour in range(HOURS)
        for n in range(EACH)
        for p in range(KAFKA_PARTITIONS)
    ]
    return shared_archive(sent, KAFKA_PARTITIONS)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    made: Requests = []
    watch_s3(monkeypatch, lambda name, asked: made.append((name, asked.get("Key", asked.get("Prefix", "")))))
    return made


def test_an_hour_out_of_many_reads_only_the_objects_of_that_hour(config: ConnectorConfig, requests: Requests) -> None:
    segments = snapshot(config).segments
    wanted = {s.key for s in segments if s.chunk_start == PICKED}
    assert (len(segments), len(wanted)) == (HOURS * KAFKA_PARTITIONS, KAFKA_PARTITIONS)
    requests.clear()

    report = restored(config, from_time=PICKED, to_time=PICKED + HOUR)

    assert (report.record_count, report.object_count, report.verified) == (EACH * KAFKA_PARTITIONS, len(wanted), True)
    # One look at where the index's log begins, and at which files it has. This process has read those files before.
    of_index = [name for name, key in requests if key.startswith(f"{config.archive.index_dir}/")]
    assert of_index == ["GetObject", "ListObjectsV2"]
    own = f"{config.archive.index_dir}/", f"{config.archive.restore_dir}/"
    of_archive = [(name, key) for name, key in requests if not key.startswith(own)]
    assert {name for name, _ in of_archive} == {"HeadObject", "GetObject"}
    # Of each stream, nobody asks for what only an earlier run, or another behavior.on.error, would have written.
    of_mapping = [name for name, key in requests if key.endswith(".mapping.parquet")]
    assert of_mapping == ["PutObject"] * KAFKA_PARTITIONS
    assert not [key for _, key in requests if "left-out" in key]
    for name in ("HeadObject", "GetObject"):
        assert {key for made, key in of_archive if made == name} == wanted


def test_how_often_an_object_is_read_does_not_depend_on_how_many_there_are(
    config: ConnectorConfig, requests: Requests
) -> None:
    """Once to be sent and once to be verified, each by one request: they are small."""

    def reads(hours: int) -> float:
        requests.clear()
        restored(config, restore_id=f"r{hours}", to_time=PICKED + hours * HOUR, from_time=PICKED)
        folder = f"{config.layout.topics_dir}/"
        return sum(name == "GetObject" and key.startswith(folder) for name, key in requests) / hours

    assert reads(1) == reads(8) == 2 * KAFKA_PARTITIONS
