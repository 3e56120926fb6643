"""Encryption, storage classes and tags: by a store that has keys, and a bucket whose policy refuses what lacks them."""

import base64
import hashlib
import json
import random
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from pydantic import SecretStr

from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.connect.converters.registry_contents import RegistryContents
from kafka_s3_platform.connect.registries.archive import RegistryArchive
from kafka_s3_platform.core.config.settings import ConnectorConfig, StoreSettings
from kafka_s3_platform.core.errors import AuthorizationError, PlatformError, TransientError
from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.store.client import new_s3_client
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.core.upkeep.index import keep_up_index
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import StackStatus
from kafka_s3_platform_tests.conftest import Lab, connector_keys, own_stack, present
from kafka_s3_platform_tests.store.servers import KmsStore, Recorder
from kafka_s3_platform_tests.store.written import (
    CUSTOMER_KEY,
    KEY,
    LARGE,
    both_sizes,
    changed,
    creations,
    written,
)
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, archived, compact_day, produce

KMS = {"encryption": "aws:kms", "kms_key_id": "alias/archive"}


@pytest.fixture(scope="module")
def encrypting(stack: StackStatus, stack_settings: StackSettings) -> Iterator[StackSettings]:
    """A second S3 server, which has keys to encrypt with."""
    with own_stack(stack_settings) as own:
        server = KmsStore(own)
        server.start()
        for _ in range(120):
            try:
                server.check()
                break
            except TransientError:
                server.daemon.refuse_dead()
                time.sleep(0.5)
        server.create_bucket()
        yield own


@pytest.fixture
def encrypted(encrypting: StackSettings, recorded: StoreSettings, recorder: Recorder) -> StoreSettings:
    recorder.upstream = encrypting.s3_endpoint.partition("://")[2]
    return changed(recorded, bucket=encrypting.bucket, encryption="AES256")


@both_sizes
def test_an_object_is_encrypted_by_the_store(encrypted: StoreSettings, recorder: Recorder, body: bytes) -> None:
    store = written(encrypted, body)
    found = new_s3_client(encrypted).head_object(Bucket=encrypted.bucket, Key=KEY)
    assert found["ServerSideEncryption"] == "AES256"
    assert store.get(KEY) == body
    assert [r.headers["x-amz-server-side-encryption"] for r in creations(recorder.requests)] == ["AES256"]
    store.delete(KEY, found["ETag"])


@both_sizes
def test_an_object_is_under_its_kms_key_and_in_its_storage_class(
    encrypted: StoreSettings, recorder: Recorder, body: bytes
) -> None:
    owner = "bucket-owner-full-control"
    settings = changed(encrypted, **KMS, canned_acl=owner, storage_class="STANDARD_IA")
    store = written(settings, body)
    found = new_s3_client(encrypted).head_object(Bucket=encrypted.bucket, Key=KEY)
    assert (found["ServerSideEncryption"], found["SSEKMSKeyId"]) == ("aws:kms", KMS["kms_key_id"])
    assert found["StorageClass"] == "STANDARD_IA"
    assert store.get(KEY) == body
    assert [r.headers["x-amz-acl"] for r in creations(recorder.requests)] == [owner]
    store.delete(KEY, found["ETag"])


@both_sizes
def test_an_object_under_a_customers_key_is_read_with_it_only(recorded: StoreSettings, body: bytes) -> None:
    settings = changed(recorded, encryption="AES256", customer_key=SecretStr(CUSTOMER_KEY))
    store = written(settings, body)
    found = present(store.head(KEY))
    assert store.get(KEY) == body
    with store.open(KEY, found.etag) as file:
        file.seek(2)
        assert file.read(2) == body[2:4]
    with pytest.raises(PlatformError):
        ObjectStore(recorded).get(KEY)


def test_a_customers_key_is_sent_with_every_part(recorded: StoreSettings, recorder: Recorder) -> None:
    written(changed(recorded, encryption="AES256", customer_key=SecretStr(CUSTOMER_KEY)), LARGE)
    digest = base64.b64encode(hashlib.md5(bytes(range(32)), usedforsecurity=False).digest()).decode()
    sent = [r.headers.get("x-amz-server-side-encryption-customer-key-md5") for r in recorder.requests]
    assert sent == [digest] * len(recorder.requests)
    assert len(sent) == 4


@pytest.mark.parametrize("customer_key", [None, SecretStr(CUSTOMER_KEY)], ids=["by the store", "by a customer's key"])
def test_the_index_is_encrypted_as_its_objects_are(
    encrypted: StoreSettings, recorder: Recorder, customer_key: SecretStr | None
) -> None:
    index = TopicIndex(ConnectorIndex(changed(encrypted, customer_key=customer_key), "_index", "c"), token_hex(4))
    index.open().commit(Change((Scan(0, 0, 5, 5, None, 1),)))
    assert len(index.open().state.scans) == 1
    puts = creations(recorder.requests)
    name = "x-amz-server-side-encryption" + ("-customer-algorithm" if customer_key else "")
    assert len(puts) > 2
    assert {r.headers.get(name) for r in puts} == {"AES256"}


# A bucket whose policy refuses whatever does not ask for this


def forbid(bucket: str, condition: str, value: str, *, but: Sequence[str]) -> dict[str, Any]:
    """The statement that denies each PUT without this header, but for the keys with these beginnings."""
    exempt = [f"arn:aws:s3:::{bucket}/{prefix}*" for prefix in but]
    return {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:PutObject",
        "NotResource": exempt or [f"arn:aws:s3:::{bucket}/none"],
        "Condition": {"StringNotEquals": {f"s3:{condition}": value}},
    }


@pytest.fixture
def demanding(encrypting: StackSettings, lab: Lab) -> StoreSettings:
    """A bucket that takes objects under one KMS key alone, and all but an index in one storage class.

    A part of a multipart upload has no such headers: for AWS its upload's count. This server asks for the part's, so
    the folders with multipart uploads are exempt, and their objects are looked at.
    """
    store = lab.store.model_copy(update={"endpoint_url": encrypting.s3_endpoint, "bucket": f"demands-{token_hex(4)}"})
    client = new_s3_client(store)
    client.create_bucket(Bucket=store.bucket)
    everything = [f"arn:aws:s3:::{store.bucket}", f"arn:aws:s3:::{store.bucket}/*"]
    allow = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": everything}
    uploads = (f"topics/{lab.topic}", f"topics_daily/{lab.topic}", "_index/.write-check")
    header = "x-amz-server-side-encryption"
    statements = [
        allow,
        forbid(store.bucket, header, "aws:kms", but=uploads),
        forbid(store.bucket, f"{header}-aws-kms-key-id", KMS["kms_key_id"], but=uploads),
        forbid(store.bucket, "x-amz-storage-class", "STANDARD_IA", but=(*uploads, "_index/connector=")),
    ]
    policy = {"Version": "2012-10-17", "Statement": statements}
    client.put_bucket_policy(Bucket=store.bucket, Policy=json.dumps(policy))
    return store


def load(folder: Path, lab: Lab, store: StoreSettings, **more: str) -> ConnectorConfig:
    keys = {
        "name": "c",
        "topics": lab.topic,
        "timezone": "UTC",
        "archive.start.hour": "2025-12-01T00:00",
        "archive.allowed.lateness.ms": "0",
        "s3.part.size": "5242880",
        "s3.part.retries": "0",
        "s3.ssea.name": "aws:kms",
        "s3.sse.kms.key.id": KMS["kms_key_id"],
        "s3.storage.class": "STANDARD_IA",
        "s3.object.tagging": "true",
        "s3.object.tagging.key.value.pairs": "team:data",
        "s3.object.behavior.on.tagging.error": "fail",
    }
    worker = folder / "worker.properties"
    worker.write_text(f"bootstrap.servers={lab.kafka.bootstrap_servers}\n")
    file = folder / "c.json"
    file.write_text(json.dumps({**keys, **connector_keys(store), **more}))
    return load_connector(file, worker, {})


def test_a_bucket_that_demands_a_key_and_a_class_takes_whatever_is_written(
    demanding: StoreSettings, lab: Lab, tmp_path: Path
) -> None:
    complete = {**KMS, "storage_class": "STANDARD_IA"}
    for lacking in ({"encryption": None, "kms_key_id": None}, {"kms_key_id": "alias/other"}, {"storage_class": None}):
        with pytest.raises(AuthorizationError):
            ObjectStore(changed(demanding, **{**complete, **lacking})).put_new("others/key", b"body")
    with pytest.raises(AuthorizationError):
        ObjectStore(demanding).put_new("_index/key", b"body")

    lab.create_topic()
    noise = random.Random(1)
    large = [Sent(noise.randbytes(900_000), b"k", NOON + n * timedelta(seconds=1)) for n in range(7)]
    lab.produce([*large, Sent(b"small", b"k", NOON + HOUR, (("trace", b"t"),))])
    config = load(tmp_path, lab, demanding)
    archived(config)
    compact_day(CompactRequest(config, lab.topic, NOON.date(), "merge"), InProcessRunner())
    produce(config.kafka, lab.topic, [Sent(b"late", b"k", NOON)])
    archived(config)
    assert verify_archive(config, lab.topic, True, InProcessRunner()).ok
    keep_up_index(config, dry_run=False, retention=timedelta())
    RegistryArchive(config, "http://registry").write(RegistryContents("http://registry"))
    request = RestoreRequest(config, lab.topic, f"{lab.topic}.copy", "mine", "run", create_topic=True)
    assert restore(ArchiveSource(request), InProcessRunner()).verified
    json_keys = {
        "format.class": "JsonFormat",
        "value.converter": "StringConverter",
        "key.converter": "StringConverter",
        "name": "json",
    }
    beside = {"store.kafka.keys": "true", "store.kafka.headers": "true", "topics.dir": "json"}
    archived(load(tmp_path, lab, demanding, **json_keys, **beside), [NOON + HOUR])
    check_objects(demanding, lab.topic)


def check_objects(store: StoreSettings, topic: str) -> None:
    """Each object has the key and the class, and those of records have tags."""
    client = new_s3_client(store)
    listed = [item["Key"] for item in client.list_objects_v2(Bucket=store.bucket)["Contents"]]
    folders = {key.partition("/")[0] for key in listed}
    assert folders == {"_index", "_restore", "topics", "topics_daily", "json"}
    for key in listed:
        found = client.head_object(Bucket=store.bucket, Key=key)
        assert (found.get("SSEKMSKeyId"), key) == (KMS["kms_key_id"], key)
        assert (found.get("StorageClass"), key) == (None if key.startswith("_index/connector=") else "STANDARD_IA", key)
    tags = {key: list_tags(client, store.bucket, key) for key in listed if f"/{topic}/" in key}
    assert all({*each} == {"team", "startOffset", "endOffset", "recordCount"} for each in tags.values()), tags
    suffixes = {key.rpartition("+")[2].partition(".")[2] for key in tags}
    assert suffixes >= {"parquet", "json", "keys.avro", "headers.avro"}, suffixes


def list_tags(client: Any, bucket: str, key: str) -> set[str]:
    return {tag["Key"] for tag in client.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]}
