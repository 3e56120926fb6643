"""Objects that are named by the offset of their last record, as Lenses' sink and templates name them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.sources.objects import group_objects
from kafka_s3_platform.sources.read import ForeignStream
from kafka_s3_platform.sources.scan import scan_objects
from kafka_s3_platform_tests.sources.memory import MemoryStore, lines
from kafka_s3_platform_tests.sources.sink_files import JSON, Keys, config_of, confluent

LENSES: Keys = {
    "connector.class": "io.lenses.streamreactor.connect.aws.s3.source.S3SourceConnector",
    "connect.s3.kcql": "INSERT INTO copy SELECT * FROM bucket:topics STOREAS JSON",
    "key.converter": JSON,
    "value.converter": JSON,
}
TEMPLATE = {
    **confluent("json", JSON, JSON),
    "archive.source.template": "{{topic}}/{{partition}}/{{end_offset}}.json",
}
ENVELOPES = LENSES | {"connect.s3.kcql": f"{LENSES['connect.s3.kcql']} PROPERTIES('store.envelope'=true)"}


def stream(folder: Path, keys: Keys, objects: Mapping[int, bytes]) -> ForeignStream:
    config = config_of(folder, keys)
    store = MemoryStore({f"topics/t/0/{last}.json": body for last, body in objects.items()})
    (group,) = group_objects(scan_objects(config, store=store))
    return ForeignStream(config, group, store)


def envelopes(start: int, count: int) -> bytes:
    return b"".join(b'{"key":1,"value":%d,"metadata":{"offset":%d}}\n' % (n, n) for n in range(start, start + count))


@pytest.mark.parametrize("keys", [LENSES, TEMPLATE], ids=["Lenses", "a template"])
def test_an_object_with_more_records_than_offsets_up_to_its_last_one_is_bad(tmp_path: Path, keys: Keys) -> None:
    found = stream(tmp_path, keys, {2: lines(0, 4)})
    with pytest.raises(IntegrityError, match=r"2\.json holds 4 records, but the offset 2 in its name has room for"):
        list(found)


@pytest.mark.parametrize("keys", [LENSES, TEMPLATE], ids=["Lenses", "a template"])
@pytest.mark.parametrize(
    ("middle", "hole"),
    [({}, (4, 8)), ({7: lines(6, 2)}, (4, 6)), ({7: lines(4, 4)}, None)],
    ids=["missing", "cut", "whole"],
)
def test_offsets_between_two_objects_that_are_in_none_are_told(
    tmp_path: Path, keys: Keys, middle: dict[int, bytes], hole: tuple[int, int] | None
) -> None:
    found = stream(tmp_path, keys, {3: lines(0, 4), **middle, 11: lines(8, 4)})
    list(found)
    told = [f"t-0: offsets [{hole[0]}, {hole[1]}) are in no object"] if hole else []
    assert [gap.partition(",")[0] + "," + gap.split(",")[1] for gap in found.report.gaps] == told
    assert found.report.gap_count == len(told)


def test_offsets_between_two_envelopes_that_are_in_none_are_told(tmp_path: Path) -> None:
    found = stream(tmp_path, ENVELOPES, {3: envelopes(0, 4), 11: envelopes(8, 4)})
    list(found)
    assert ["t-0: offsets [4, 8) are in no object" in gap for gap in found.report.gaps] == [True]


@pytest.mark.parametrize(("end", "hole"), [(10, (8, 10)), (8, None), (None, None)])
def test_offsets_that_were_asked_for_behind_the_last_object_are_told(
    tmp_path: Path, end: int | None, hole: tuple[int, int] | None
) -> None:
    config = config_of(tmp_path, TEMPLATE)
    store = MemoryStore({"topics/t/0/3.json": lines(0, 4), "topics/t/0/7.json": lines(4, 4)})
    (group,) = group_objects(scan_objects(config, store=store))
    found = ForeignStream(config, group, store, 2, end, by_offset=True)
    list(found)
    assert [f"offsets [{hole[0]}, {hole[1]}) are in no object" in gap for gap in found.report.gaps if hole] == [
        True
    ] * bool(hole)
    assert found.report.gap_count == bool(hole)
