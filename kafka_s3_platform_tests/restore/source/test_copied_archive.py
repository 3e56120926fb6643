"""An archive copied to another bucket with its index: ETags are others there, the bytes are the same."""

from datetime import date
from typing import Any

import pytest

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import IntegrityError, PreflightError
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.upkeep.compact.days import CompactRequest
from kafka_s3_platform.upkeep.compact.run import compact_day
from kafka_s3_platform.upkeep.verify import verify_archive
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.restore.own import restored
from kafka_s3_platform_tests.restore.targets import Archive, put_in_parts
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, snapshot

pytestmark = pytest.mark.integration

DAY = date(2026, 1, 1)


@pytest.fixture
def copied(shared_archive: Archive, lab: Lab) -> ConnectorConfig:
    """Two hours, archived, and copied object by object."""
    original = shared_archive([Sent(b"%d" % n, None, NOON + n % 2 * HOUR) for n in range(20)])
    for item in list(ObjectStore(original.store).list("")):
        found = lab.s3.get_object(Bucket=original.store.bucket, Key=item.key)
        if item.key.startswith("topics/"):
            put_in_parts(lab.s3, lab.store.bucket, item.key, found["Body"].read(), found["Metadata"])
        else:
            lab.s3.put_object(Bucket=lab.store.bucket, Key=item.key, Body=found["Body"].read())
    return original.model_copy(update={"store": lab.store})


def tamper(config: ConnectorConfig, client: Any) -> str:
    """Other bytes, as many as before."""
    key = snapshot(config).segments[0].key
    found = client.get_object(Bucket=config.store.bucket, Key=key)
    body = bytearray(found["Body"].read())
    body[len(body) // 2] ^= 1
    put_in_parts(client, config.store.bucket, key, bytes(body), found["Metadata"])
    return key


@pytest.mark.parametrize("deep", [False, True])
def test_it_is_verified_and_a_tampered_copy_is_found(copied: ConnectorConfig, lab: Lab, deep: bool) -> None:
    store = ObjectStore(copied.store)
    assert all(store.head(s.key).etag != s.etag for s in snapshot(copied).segments)  # type: ignore[union-attr]
    assert verify_archive(copied, copied.topics[0], deep, InProcessRunner()).ok
    key = tamper(copied, lab.s3)
    [damage] = verify_archive(copied, copied.topics[0], deep, InProcessRunner()).damages
    assert damage.key == key
    assert "and other bytes: it was replaced" in damage.message


def test_it_is_merged_and_restored(copied: ConnectorConfig) -> None:
    assert restored(copied).record_count == 20
    compact_day(CompactRequest(copied, copied.topics[0], DAY, "merge"), InProcessRunner())
    assert verify_archive(copied, copied.topics[0], True, InProcessRunner()).ok


def test_a_tampered_copy_is_neither_merged_nor_restored(copied: ConnectorConfig, lab: Lab) -> None:
    tamper(copied, lab.s3)
    with pytest.raises(PreflightError, match="was replaced"):
        restored(copied)
    with pytest.raises(IntegrityError, match="and other bytes"):
        compact_day(CompactRequest(copied, copied.topics[0], DAY, "merge"), InProcessRunner())
