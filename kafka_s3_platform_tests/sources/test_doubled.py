"""Objects whose names prove that they hold the same records, in whichever folders they are."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.model.notes import DoubtNote
from kafka_s3_platform.sources.objects import group_objects
from kafka_s3_platform.sources.read import ForeignStream
from kafka_s3_platform.sources.scan import scan_objects
from kafka_s3_platform_tests.sources.memory import MemoryStore, lines
from kafka_s3_platform_tests.sources.sink_files import JSON, Keys, config_of, confluent

VALUES = confluent("json", JSON, JSON)
HOURLY = VALUES | {"partitioner.class": "HourlyPartitioner", "locale": "en", "timezone": "UTC"}
FIELDS = VALUES | {"partitioner.class": "FieldPartitioner", "partition.field.name": "f"}
ANY = VALUES | {"archive.source.template": "dt={{any}}/{{topic}}+{{partition}}+{{start_offset}}.json"}
BOTH = VALUES | {"archive.source.template": "dt={{any}}/{{topic}}+{{partition}}+{{start_offset}}-{{end_offset}}.json"}
HOUR = "topics/t/year=2026/month=01/day=01/hour="


def values(folder: Path, keys: Keys, objects: Mapping[str, bytes]) -> list[bytes]:
    config = config_of(folder, keys)
    store = MemoryStore(objects)
    (group,) = group_objects(scan_objects(config, store=store))
    return [v for batch in ForeignStream(config, group, store) for v in batch.column("value").to_pylist()]


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (HOURLY, (f"{HOUR}12/t+0+10.json", f"{HOUR}13/t+0+10.json")),
        (FIELDS, ("topics/t/f=a/t+0+10.json", "topics/t/f=b/t+0+10.json")),
        (ANY, ("topics/dt=1/t+0+10.json", "topics/dt=2/t+0+10.json")),
    ],
    ids=["hours", "fields", "a template"],
)
def test_two_objects_that_begin_at_one_offset_hold_one_record_twice(
    tmp_path: Path, keys: Keys, names: tuple[str, str]
) -> None:
    objects = {names[0]: lines(10, 3), names[1]: lines(10, 5)}
    with pytest.raises(IntegrityError, match=r"it begins where .* does, so records would come twice"):
        values(tmp_path, keys, objects)
    ignoring = keys | {"behavior.on.error": "ignore"}
    assert values(tmp_path, ignoring, objects) == [b"10", b"11", b"12"]


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (("0-9", lines(0, 10)), ("5-14", lines(5, 10)), 5),
        (("0-9", lines(0, 10)), ("5-14", lines(5, 3)), 5),
        (("0-9", lines(0, 3)), ("5-14", lines(5, 10)), 9),
        (("0-9", lines(0, 3)), ("5-14", lines(5, 3)), None),
        (("0-4", lines(0, 5)), ("5-14", lines(5, 10)), None),
    ],
    ids=["both whole", "the first whole", "the second whole", "neither", "apart"],
)
def test_names_and_numbers_of_records_prove_that_two_objects_share_records(
    tmp_path: Path, one: tuple[str, bytes], other: tuple[str, bytes], shared: int | None
) -> None:
    objects = {f"topics/dt={n}/t+0+{name}.json": body for n, (name, body) in enumerate((one, other))}
    if shared is None:
        assert len(values(tmp_path, BOTH, objects)) == (one[1] + other[1]).count(b"\n")
        return
    with pytest.raises(IntegrityError, match=f"5-14.json holds offset {shared}, and so does an object before it"):
        values(tmp_path, BOTH, objects)


def split(*objects: tuple[str, int, int]) -> dict[str, bytes]:
    """Objects of a folder, a first offset and a number of records each."""
    return {f"{HOUR}{hour}/t+0+{first}.json": lines(first, count) for hour, first, count in objects}


@pytest.mark.parametrize(
    ("objects", "bad"),
    [
        ((("08", 20, 7), ("09", 24, 5), ("08", 27, 3)), ("09/t+0+24", 24)),
        ((("08", 20, 7), ("09", 19, 1), ("09", 25, 2), ("08", 27, 3)), ("09/t+0+25", 25)),
        ((("08", 20, 4), ("08", 24, 4), ("09", 22, 6), ("08", 28, 1)), ("09/t+0+22", 22)),
    ],
)
def test_an_object_whose_records_reach_the_next_one_of_its_folder_holds_all_offsets_between(
    tmp_path: Path, objects: tuple[tuple[str, int, int], ...], bad: tuple[str, int]
) -> None:
    where, shared = bad
    with pytest.raises(IntegrityError, match=rf"{re.escape(where)}.json holds offset {shared}, and so does an object"):
        values(tmp_path, HOURLY, split(*objects))


@pytest.mark.parametrize(
    ("objects", "doubt"),
    [
        ((("08", 20, 7), ("09", 27, 3), ("10", 30, 1)), ""),
        ((("08", 20, 7), ("09", 24, 5)), "order differs from the source's: records of 1 objects lay between"),
        ((("08", 20, 3), ("09", 24, 5), ("08", 29, 3)), "by names and numbers of records, 1 objects begin behind"),
        ((("08", 20, 3), ("09", 24, 2), ("10", 29, 3)), "by names and numbers of records, 2 objects begin behind"),
    ],
)
def test_an_order_of_folders_that_names_and_numbers_do_not_prove_is_a_doubt(
    tmp_path: Path, objects: tuple[tuple[str, int, int], ...], doubt: str
) -> None:
    config = config_of(tmp_path, HOURLY)
    store = MemoryStore(split(*objects))
    (group,) = group_objects(scan_objects(config, store=store))
    stream = ForeignStream(config, group, store)
    assert sum(batch.num_rows for batch in stream) == sum(count for _, _, count in objects)
    doubts = [note for note in stream.report.notes(config) if isinstance(note, DoubtNote)]
    assert [doubt in note for note in doubts] == [True] * bool(doubt)
