"""Encryption, ACLs and storage classes, by a store that has keys."""

import base64
import hashlib
import time
from collections.abc import Iterator
from secrets import token_hex

import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import PlatformError, TransientError
from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.store.client import new_s3_client
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import StackStatus
from kafka_s3_platform_tests.conftest import own_stack, present
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
