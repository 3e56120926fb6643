"""Objects that tests write in one request or in parts."""

import base64
from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.upload import Provenance, SegmentUpload
from kafka_s3_platform_tests.store.http_proxy import HttpRequest

PART = 5_242_880
KEY = "topics/t/hour=00/t+0+0000000000.json"
FACTS = {"first-offset": "0", "last-offset": "9", "record-count": "10"}
SMALL, LARGE = b"small", b"x" * (PART + 1)


both_sizes = pytest.mark.parametrize("body", [SMALL, LARGE], ids=["one PUT", "multipart"])

CUSTOMER_KEY = base64.b64encode(bytes(range(32))).decode()


def changed(settings: StoreSettings, **changes: Any) -> StoreSettings:
    return StoreSettings.model_validate({**settings.model_dump(), **changes})


def written(settings: StoreSettings, body: bytes, facts: dict[str, str] | None = None) -> ObjectStore:
    store = ObjectStore(settings)
    upload = SegmentUpload(store, KEY, Provenance("c", "t", "id", "index", "run", 1))
    upload.write(body)
    upload.finish(FACTS if facts is None else facts)
    return store


def creations(requests: list[HttpRequest]) -> list[HttpRequest]:
    """What begins an object: a PUT of all of it, or the start of a multipart upload."""
    return [
        r
        for r in requests
        if (r.method == "PUT" and "partNumber" not in r.target and "tagging" not in r.target)
        or (r.method == "POST" and "uploads" in r.target)
    ]
