"""Restores of objects whose content is another than their names or the file lead to expect."""

import gzip
import io
import tarfile
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from pydantic import SecretStr

from kafka_s3_platform.config.settings import ConverterSettings, RegistrySettings, StoreSettings, TransformSettings
from kafka_s3_platform.errors import IntegrityError, PreflightError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.restore.request import Outgoing
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.formats.test_compression import xerial
from kafka_s3_platform_tests.restore.foreign import JSON, LINES, Load, restored, values

pytestmark = pytest.mark.integration

PutBody = Callable[[str, int, str, bytes], str]


@pytest.fixture
def put_body(store_settings: StoreSettings, s3_client: Any) -> PutBody:
    """Puts any bytes as Connect's sink names objects."""

    def stored(topic: str, first: int, extension: str, body: bytes) -> str:
        key = f"topics/{topic}/partition=0/{topic}+0+{first:010d}.{extension}"
        s3_client.put_object(Bucket=store_settings.bucket, Key=key, Body=body)
        return key

    return stored


def lines(first: int, count: int = 4) -> list[bytes]:
    return [b'{"n":%d}' % n for n in range(first, first + count)]


def text(first: int) -> bytes:
    return b"".join(line + b"\n" for line in lines(first))


def test_content_tells_how_objects_are_compressed_and_an_archive_of_files_is_refused_by_name(
    load: Load, put_body: PutBody, lab: Lab
) -> None:
    put_body(lab.topic, 0, "json", bytes(cramjam.lz4.compress(text(0))))
    put_body(lab.topic, 4, "json.snappy", xerial(text(4)))
    put_body(lab.topic, 8, "json", bytes(cramjam.snappy.compress(text(8))))
    put_body(lab.topic, 12, "json.gz", bytes(cramjam.lz4.compress(text(12))))
    report = restored(load(LINES, JSON), (lab.topic,), "{topic}-copy")
    assert (report.record_count, report.verified) == (16, True)
    assert values(lab.kafka, f"{lab.topic}-copy") == lines(0, 16)

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        found = tarfile.TarInfo("16.json")
        found.size = len(text(16))
        archive.addfile(found, io.BytesIO(text(16)))
    for body, what in ((packed.getvalue(), "a tar archive,"), (gzip.compress(packed.getvalue()), "inside of gzip")):
        key = put_body(lab.topic, 16, "json", body)
        with pytest.raises(IntegrityError, match=f"object {key.replace('+', '.')} is .*{what}"):
            restored(load(LINES, JSON), (lab.topic,), "{topic}-refused")
    assert values(lab.kafka, f"{lab.topic}-refused") == []


def test_nothing_is_created_where_no_record_can_be_written_and_a_dry_run_says_so(
    load: Load, put_body: PutBody, lab: Lab
) -> None:
    put_body(lab.topic, 0, "json", text(0))
    # The file would not load so: the restore asks for another converter.
    avro = ConverterSettings(format="AVRO", registry=RegistrySettings(url="http://127.0.0.1:9"))
    config = load(LINES, JSON)
    for behavior in ("fail", "ignore"):
        asked_for: dict[str, Any] = {"outgoing": Outgoing(value=avro), "behavior_on_error": behavior}
        with pytest.raises(PreflightError, match=r"none of the first 4 records .* can be written: .*has no schema"):
            restored(config, (lab.topic,), "{topic}-copy", **asked_for)
        for exact in (False, True):
            planned = restored(config, (lab.topic,), "{topic}-copy", dry_run=True, exact=exact, **asked_for)
            assert "can be written: " in planned.refusals[0]
    with ClusterAdmin(lab.kafka) as admin:
        assert f"{lab.topic}-copy" not in admin.topics()


def test_an_exact_dry_run_writes_every_record_and_names_the_one_that_cannot_be(
    load: Load, put_body: PutBody, topic_name: str
) -> None:
    put_body(topic_name, 0, "json", b'{"n":1}\n')
    put_body(topic_name, 1, "json", b'{"n":[]}\n')
    cast = {"spec": SecretStr("n:int32")}
    outgoing = Outgoing(transforms=(TransformSettings(alias="cast", type="Cast$Value", options=cast),))
    config = load(LINES, JSON)
    planned = restored(config, (topic_name,), "{topic}-copy", dry_run=True, outgoing=outgoing)
    assert planned.refusals == ()
    counted = restored(config, (topic_name,), "{topic}-copy", dry_run=True, exact=True, outgoing=outgoing)
    assert "the record of source offset 1 fails in " in counted.refusals[0]
    left = restored(
        config, (topic_name,), "{topic}-copy", dry_run=True, exact=True, outgoing=outgoing, behavior_on_error="ignore"
    )
    assert (left.record_count, left.refusals) == (2, ())
    assert any("1 records cannot be written and are left out. First, the record of source" in n for n in left.notes)
