"""Objects that tests write in one request or in parts."""

import base64
from typing import Any

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.upload import Provenance, SegmentUpload

PART = 5_242_880
KEY = "topics/t/hour=00/t+0+0000000000.json"
FACTS = {"first-offset": "0", "last-offset": "9", "record-count": "10"}
SMALL, LARGE = b"small", b"x" * (PART + 1)


CUSTOMER_KEY = base64.b64encode(bytes(range(32))).decode()


def changed(settings: StoreSettings, **changes: Any) -> StoreSettings:
    return StoreSettings.model_validate({**settings.model_dump(), **changes})


def written(settings: StoreSettings, body: bytes, facts: dict[str, str] | None = None) -> ObjectStore:
    store = ObjectStore(settings)
    upload = SegmentUpload(store, KEY, Provenance("c", "t", "id", "index", "run", 1))
    upload.write(body)
    upload.finish(FACTS if facts is None else facts)
    return store
