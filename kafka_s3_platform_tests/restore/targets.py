"""Where the restores of a test go, also where it shares an archive with others."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from kafka_s3_platform.config.settings import ConnectorConfig

Archive = Callable[..., ConnectorConfig]
"""Archives a topic with some records by a connector with some settings."""

_FOLDER = "_restore"


def own_restores(shared: ConnectorConfig) -> ConnectorConfig:
    """The connector of an archive that other tests restore too: documents and targets of its restores are its own."""
    archive = shared.archive.model_copy(update={"restore_dir": f"{_FOLDER}-{uuid4().hex[:8]}"})
    return shared.model_copy(update={"archive": archive})


def target_of(config: ConnectorConfig) -> str:
    return f"{config.topics[0]}-restored{config.archive.restore_dir.removeprefix(_FOLDER)}"


def once(make: Archive) -> Archive:
    """`make`, which for equal arguments is called once."""
    made: dict[str, ConnectorConfig] = {}

    def get(*given: Any, **settings: Any) -> ConnectorConfig:
        asked = repr((given, sorted(settings.items())))
        if asked not in made:
            made[asked] = make(*given, **settings)
        return made[asked]

    return get


def put_in_parts(client: Any, bucket: str, key: str, body: bytes, metadata: dict[str, str]) -> None:
    """As tools do that copy large objects: the ETag is not that of one PUT."""
    upload = client.create_multipart_upload(Bucket=bucket, Key=key, Metadata=metadata)
    place = {"Bucket": bucket, "Key": key, "UploadId": upload["UploadId"]}
    part = client.upload_part(**place, PartNumber=1, Body=body)
    client.complete_multipart_upload(**place, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
