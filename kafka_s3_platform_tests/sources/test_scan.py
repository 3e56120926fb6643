"""What a listing comes to: the rules of Confluent's S3 source, and the layouts of other sinks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafka_s3_platform.connect.sources.objects import ForeignObject, group_objects, is_covered, select_objects
from kafka_s3_platform.connect.sources.scan import SourceListing, read_places
from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform_tests.sources.memory import MemoryStore, source

AVRO = {"format": "avro"}
HOURLY = {"format": "json", "partitioner": "Hourly"}
FIRST = "topics/s3_topic/partition=0/s3_topic+0+0000000000.avro"
NOON = 1_767_268_800_000
HOUR = 3_600_000


def found(
    keys: list[str], layout: Mapping[str, Any] = AVRO, topics: tuple[str, ...] = (), **own: Any
) -> tuple[list[ForeignObject], SourceListing]:
    scanned = SourceListing(source(layout, topics, **own), store=MemoryStore(dict.fromkeys(keys, b"x")))
    return list(scanned), scanned


def by(template: str, topics_dir: str = "") -> dict[str, Any]:
    return {"topics_dir": topics_dir, "key_layout": "template", "file_name_template": template}


def told(objects: list[ForeignObject]) -> list[tuple[str, int, int | None, str]]:
    return [(o.topic, o.kafka_partition, o.first_offset, o.encoded_partition) for o in objects]


def test_without_topics_every_topic_below_topics_dir_is_found() -> None:
    objects, _ = found([FIRST, "topics/other/partition=2/other+2+0000000009.avro"])
    assert told(objects) == [("other", 2, 9, "partition=2"), ("s3_topic", 0, 0, "partition=0")]


def test_the_topics_of_the_file_are_the_ones_that_are_read() -> None:
    objects, _ = found([FIRST, "topics/other/partition=2/other+2+9.avro"], topics=("other",))
    assert [o.topic for o in objects] == ["other"]
    assert [o.topic for o in SourceListing(source(AVRO), ["s3_topic"], MemoryStore({FIRST: b""}))] == ["s3_topic"]


def test_a_topic_that_has_no_object_is_told() -> None:
    _, scanned = found([FIRST], topics=("s3_topic", "gone"), behavior_on_error="log")
    assert scanned.report.lines == ["no object of topic gone was found below s3://bucket/topics/"]


def test_where_was_looked_is_told_with_an_example_and_what_was_there_instead() -> None:
    keys = ["topics/t/partition=0/read.me", "elsewhere/t-00000-000000000000.gz"]
    _, scanned = found(keys, topics=("t",))
    assert scanned.describe_search() == (
        "t was looked for below s3://bucket/topics/ (layout connect, partitioner Default, format avro, such as "
        "topics/t/partition=0/t+0+0000000000.avro); 1 others end otherwise; 1 others lie outside of that folder; "
        "object topics/t/partition=0/read.me: its name does not end in .avro"
    )
    _, every = found([], {"format": "json", "partitioner": "Field", "partition_fields": ("a",)})
    told = "any topic was looked for below s3://bucket/topics/ (layout connect, partitioner Field, format json)"
    assert every.describe_search() == told
    template = "{{topic}}/{{any}}_{{partition}}_{{start_offset}}.gz"
    _, others = found([], {"format": "bytes", **by(template, "in")})
    assert f"such as in/{template})" in others.describe_search()


def test_what_is_outside_of_topics_dir_is_ignored_and_counted() -> None:
    objects, scanned = found([FIRST, "elsewhere/s3_topic+0+1.avro", "topics2/a/partition=0/a+0+0.avro"])
    assert (len(objects), scanned.report.counts, scanned.report.lines) == (1, {"outside": 2}, [])


def test_what_our_own_runs_leave_beside_objects_is_no_news() -> None:
    objects, scanned = found([FIRST, "topics/.write-check", "_restore/r1.json"])
    assert (len(objects), scanned.report.counts, scanned.report.lines) == (1, {}, [])


OWN = (
    "_restore/r1.json",
    "_restore/r1/t/0.json",
    "_index/sink/t/_delta_log/00000000000000000000.json",
    "plans/r1.report.json",
    ".write-check",
    "t/.write-check",
    "t/_0.json.offsets",
)


@pytest.mark.parametrize("template", ["{{topic}}/{{any}}", "{{any}}/{{any}}.json", "{{topic}}/{{partition}}.json"])
def test_at_the_buckets_root_what_we_wrote_ourselves_is_never_taken_for_objects_of_others(template: str) -> None:
    config = source({"format": "json", **by(template)}, ("t",), archive={"restore_dir": "plans"})
    scanned = SourceListing(config, store=MemoryStore(dict.fromkeys([*OWN, "t/0.json"], b"x")))
    assert [o.key for o in scanned] == ["t/0.json"]
    assert (scanned.report.counts, [x for x in scanned.report.lines if "object" in x]) == ({}, [])
    planned = [replace(next(iter(scanned)), key=key) for key in OWN]
    assert set(read_places(config, (), planned)) == {"none that this connector reads below its bucket"}


def test_a_wrong_extension_is_skipped_and_counted_whatever_behavior_on_error_says() -> None:
    objects, scanned = found([FIRST, "topics/s3_topic/partition=0/read.me"])
    assert (len(objects), scanned.report.counts) == (1, {"extension": 1})
    assert "does not end in .avro" in scanned.report.lines[0]


LENSES = {"format": "json", "key_layout": "lenses"}


@pytest.mark.parametrize(
    ("layout", "key", "is_missing"),
    [
        (AVRO, "topics/t/partition=2/t+2+0000000070.json.gz", True),
        (AVRO, "topics/t.b/partition=2/t.b+2+0000000070.envelope.parquet", True),
        (AVRO, "topics/t/partition=2/t+2+0000000070", True),
        (AVRO, "topics/t/partition=2/t+two+0000000070.json", False),
        (AVRO, "topics/t/partition=3/t+2+0000000070.json", False),
        (LENSES, "topics/t/1/000000000070_1_2.avro", True),
        (LENSES, "topics/t/1/notes.txt", False),
        ({"format": "json", **by("{{topic}}/{{partition}}-{{start_offset}}.json")}, "t/4-70.avro", True),
        ({"format": "json", **by("{{topic}}/{{partition}}-{{start_offset}}.json")}, "t/4-70.d/x.avro", False),
    ],
)
def test_an_object_that_lacks_only_the_ending_of_the_file_holds_records_that_are_missing(
    layout: Any, key: str, is_missing: bool
) -> None:
    config = source(layout)
    scanned = SourceListing(config, store=MemoryStore({key: b"x"}))
    assert list(scanned) == []
    assert scanned.report.counts.get("other_format", 0) == is_missing
    assert (scanned.report.bad_count, len(scanned.report.list_bad())) == (is_missing, is_missing)
    scanned = SourceListing(config, ("other",), MemoryStore({key: b"x"}))
    assert (list(scanned), scanned.report.bad_count) == ([], 0)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("topics/t/partition=0/nonsense.avro", "unparsable"),
        ("topics/t/partition=0/t+zero+1.avro", "unparsable"),
        ("topics/t/t+0+1.avro", "misplaced"),
        ("topics/t/partition=1/t+0+1.avro", "misplaced"),
        ("topics/t/year=2026/t+0+1.avro", "misplaced"),
    ],
)
def test_a_name_that_does_not_parse_or_a_wrong_folder_fails_or_is_skipped(key: str, problem: str) -> None:
    with pytest.raises(IntegrityError, match=f"object {key.replace('+', '.')}"):
        found([FIRST, key])
    for behavior in ("ignore", "log"):
        objects, scanned = found([FIRST, key], behavior_on_error=behavior)
        assert (len(objects), scanned.report.counts) == (1, {problem: 1})
        assert key in scanned.report.lines[0]


def test_a_file_in_the_folder_of_another_topic_fails_or_is_read_as_its_name_says() -> None:
    key = "topics/a/partition=0/b+0+7.avro"
    with pytest.raises(IntegrityError, match="its name is of topic b, its folder of a"):
        found([key])
    objects, scanned = found([key], topics=("b",), behavior_on_error="log")
    assert told(objects) == [("b", 0, 7, "partition=0")]
    assert scanned.report.counts == {"topic": 1}


def test_objects_that_are_listed_out_of_order_are_read_by_kafka_partition_and_offset() -> None:
    keys = [f"topics/t/partition={p}/t+{p}+{o}.avro" for p, o in ((1, 5), (0, 30), (0, 4), (1, 0), (0, 0))]
    objects, _ = found(keys)
    assert [(g.kafka_partition, [s.name.first_offset for s in g.sets]) for g in group_objects(objects)] == [
        (0, [0, 4, 30]),
        (1, [0, 5]),
    ]


def test_two_objects_that_begin_at_one_offset_are_told() -> None:
    keys = ["topics/t/partition=0/t+0+0000000004.avro", "topics/t/partition=0/t+0+4.avro"]
    with pytest.raises(IntegrityError, match="records would come twice"):
        found(keys)
    objects, scanned = found(keys, behavior_on_error="ignore")
    assert (len(objects), scanned.report.counts) == (1, {"duplicate": 1})


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".zst"])
def test_compressed_lines_are_found_whatever_the_file_says(suffix: str) -> None:
    objects, _ = found([f"topics/t/partition=0/t+0+0.json{suffix}"], {"format": "json"})
    assert len(objects) == 1


def test_keys_headers_and_tombstones_go_with_their_values() -> None:
    layout = {"format": "json", "keys_format": "avro", "headers_format": "json", "partitioner": "Hourly"}
    hour = "topics/t/year=2026/month=01/day=01/hour=12"
    keys = [f"{hour}/t+0+0.{e}" for e in ("headers.json", "json", "keys.avro")]
    tombstones = [f"topics/t/tombstone/t+0+3.{e}" for e in ("keys.avro", "headers.json")]
    objects, _ = found([*keys, *tombstones], layout)
    (group,) = group_objects(objects)
    parts = [["value", "key", "headers"], ["key", "headers"]]
    assert [[o.part for o in s.objects] for s in group.sets] == parts
    assert [s.name.is_tombstone for s in group.sets] == [False, True]


@pytest.mark.parametrize(
    ("folder", "there", "lacking"),
    [
        ("partition=0", ("keys.avro", "headers.json"), "its values are not there beside it"),
        ("partition=0", ("keys.avro",), "its values and headers are not there beside it"),
        ("partition=0", ("json", "headers.json"), "its keys are not there beside it"),
        ("partition=0", ("json", "keys.avro"), "its headers are not there beside it"),
        ("tombstone", ("headers.json",), "its keys are not there beside it"),
    ],
)
def test_no_tombstone_and_no_null_key_is_made_of_an_object_that_was_lost(
    folder: str, there: tuple[str, ...], lacking: str
) -> None:
    layout = {"format": "json", "keys_format": "avro", "headers_format": "json"}
    whole = [f"topics/t/partition=0/t+0+0.{e}" for e in ("json", "keys.avro", "headers.json")]
    keys = [f"topics/t/{folder}/t+0+3.{e}" for e in there]
    with pytest.raises(IntegrityError, match=lacking):
        found([*whole, *keys], layout)
    objects, scanned = found([*whole, *keys], layout, behavior_on_error="ignore")
    assert sorted(o.key for o in objects) == sorted(whole)
    assert (scanned.report.counts, len(scanned.report.bad)) == ({"incomplete": 1}, 1)


@pytest.mark.parametrize("part", ["keys", "headers"])
def test_keys_and_headers_that_nobody_asked_for_are_told_as_what_is_left_out(part: str) -> None:
    objects, scanned = found([FIRST, FIRST.replace(".avro", f".{part}.avro")])
    assert (len(objects), scanned.report.counts) == (1, {"unread_part": 1})
    [line] = scanned.report.list_bad()
    assert line.startswith("1 objects of keys or headers were not read")


def test_delimiters_are_those_of_the_file() -> None:
    layout = {"format": "bytes", "directory_delim": "|", "file_delim": "~"}
    objects, _ = found(["topics|t|partition=3|t~3~0012.bin"], layout)
    assert told(objects) == [("t", 3, 12, "partition=3")]


def test_field_folders_are_those_of_the_fields_in_their_order() -> None:
    layout = {"format": "json", "partitioner": "Field", "partition_fields": ("country", "n")}
    objects, scanned = found(
        ["topics/t/country=DE/n=1/t+0+0.json", "topics/t/n=1/country=DE/t+0+1.json"], layout, behavior_on_error="log"
    )
    assert told(objects) == [("t", 0, 0, "country=DE/n=1")]
    assert scanned.report.counts == {"misplaced": 1}


def hour(number: int, offset: int) -> str:
    return f"topics/t/year=2026/month=01/day=01/hour={number:02d}/t+0+{offset}.json"


def test_windows_take_the_folders_that_may_hold_them_and_those_without_a_time() -> None:
    objects, _ = found([hour(h, h) for h in range(24)], HOURLY)
    assert [o.first_offset for o in select_objects(objects, [(NOON, NOON + HOUR)])] == [12]
    assert [o.first_offset for o in select_objects(objects, [(NOON + 1, NOON + HOUR + 1)])] == [12, 13]
    assert len(select_objects(objects, [])) == 24
    timeless, _ = found([FIRST])
    assert select_objects(timeless, [(NOON, NOON + HOUR)]) == timeless


@pytest.mark.parametrize(
    ("times", "covers"),
    [([(0, 9)], True), ([(5, 9), (0, 5)], True), ([(0, 4), (5, 9)], False), ([(2, 9)], False), ([], False)],
)
def test_a_folder_is_taken_by_windows_that_cover_it_together(times: list[tuple[int, int]], covers: bool) -> None:
    assert is_covered((1, 9), times) == covers


def test_iterated_again_a_scan_finds_folders_that_came_later() -> None:
    store = MemoryStore({hour(1, 0): b"a", hour(2, 9): b"b"})
    scanned = SourceListing(source(HOURLY), store=store)
    assert [o.key for o in scanned] == [hour(1, 0), hour(2, 9)]
    store.objects |= {hour(3, 12): b"c"}
    assert [o.key for o in scanned] == [hour(1, 0), hour(2, 9), hour(3, 12)]


def test_objects_in_cold_storage_are_told() -> None:
    store = MemoryStore({FIRST: b"x"})
    store.storage_classes[FIRST] = "DEEP_ARCHIVE"
    scanned = SourceListing(source(AVRO), store=store)
    assert [o.is_cold for o in scanned] == [True]
    assert scanned.report.counts == {"cold": 1}
    assert "DEEP_ARCHIVE" in scanned.report.lines[0]


def test_block_gzips_objects_are_found_without_their_indexes() -> None:
    layout = {
        "format": "block_gzip",
        "key_layout": "block_gzip",
        "topics_dir": "systest",
        "partitioner": "Daily",
        "path_format": "YYYY-MM-dd",
        "partition_duration_ms": 24 * HOUR,
    }
    day = "systest/2016-02-24"
    keys = [f"{day}/system-test-00000-000000000000.{e}" for e in ("gz", "index.json")]
    objects, scanned = found([*keys, f"{day}/last_chunk_index.00000-system-test.txt"], layout)
    assert told(objects) == [("system-test", 0, 0, "2016-02-24")]
    assert scanned.report.counts == {"index": 2}
    assert objects[0].window == (1_456_272_000_000, 1_456_272_000_000 + 24 * HOUR)


@pytest.mark.parametrize("topic", ["last_chunk_index.x", "t.index.json", "_SUCCESS", "x_$folder$".replace("$", "-")])
@pytest.mark.parametrize("extension", ["avro", "json"])
def test_a_topic_may_be_named_as_the_files_beside_objects_are(topic: str, extension: str) -> None:
    key = f"topics/{topic}/partition=0/{topic}+0+0000000007.{extension}"
    objects, scanned = found([key], {"format": extension})
    assert told(objects) == [(topic, 0, 7, "partition=0")]
    assert scanned.report.counts == {}


MARKERS = ["_SUCCESS", "sub_$folder$", "_committed_7", "_started_7", "._SUCCESS.crc", ".a.avro.crc", "_metadata"]


def test_markers_of_spark_and_hadoop_are_left_out_and_counted() -> None:
    places = ["topics/", "topics/s3_topic/", "topics/s3_topic/partition=0/"]
    objects, scanned = found([FIRST, *(place + name for place in places for name in MARKERS)])
    assert told(objects) == [("s3_topic", 0, 0, "partition=0")]
    assert scanned.report.counts == {"marker": 21}
    assert scanned.report.lines == []


def test_an_empty_marker_is_no_object_where_any_name_is_one() -> None:
    """What is not empty may be anybody's object."""
    store = MemoryStore({"dump/_SUCCESS": b"", "dump/part-0": b"{}", "dump/_metadata": b"{}", "dump/x": b""})
    scanned = SourceListing(source({"format": "json", **by("{{any}}/{{any}}")}, ("t",)), store=store)
    assert [o.key for o in scanned] == ["dump/_metadata", "dump/part-0", "dump/x"]
    assert scanned.report.counts == {"marker": 1}


def test_zoozs_objects_are_of_the_one_topic_that_is_named() -> None:
    layout = {
        "format": "bytes",
        "key_layout": "zooz",
        "topics_dir": "",
        "partitioner": "Hourly",
        "path_format": "'date'=YYYY-MM-dd/'hour'=HH",
        "extension": "json",
    }
    objects, _ = found(["date=2019-03-12/hour=12/3_45.json"], layout, ("my-topic",))
    assert told(objects) == [("my-topic", 3, 45, "date=2019-03-12/hour=12")]
    with pytest.raises(ConfigError, match="have no topic"):
        found([], layout)


def test_aivens_names_are_read_by_their_template() -> None:
    layout = {"format": "bytes", "key_layout": "template", "topics_dir": "a", "extension": "gz"}
    name = "{{topic}}-{{partition:padding=true}}-{{start_offset:padding=true}}"
    template = "{{topic}}/{{timestamp:unit=yyyy}}/{{timestamp:unit=MM}}/" + name
    key = "a/my-topic/2026/01/my-topic-0000000002-00000000000000000017.gz"
    objects, scanned = found([key, "a/readme.txt"], {**layout, "file_name_template": template})
    assert told(objects) == [("my-topic", 2, 17, "my-topic/2026/01")]
    assert scanned.report.counts == {"extension": 1}
    assert objects[0].window == (NOON - 12 * HOUR, NOON - 12 * HOUR + 31 * 24 * HOUR)


def test_secors_files_are_read_by_a_template_of_ours() -> None:
    day = "-".join(f"{{{{timestamp:unit={unit}}}}}" for unit in ("yyyy", "MM", "dd"))
    template = f"{{{{topic}}}}/dt={day}/{{{{any}}}}_{{{{partition}}}}_{{{{start_offset}}}}.gz"
    key = "backup/my_topic/dt=2026-01-01/1_0_00000000000000000352.gz"
    objects, _ = found([key], {"format": "bytes", **by(template, "backup")})
    assert told(objects) == [("my_topic", 0, 352, "my_topic/dt=2026-01-01")]
    assert objects[0].window == (NOON - 12 * HOUR, NOON + 12 * HOUR)


def test_dumps_without_offsets_are_read_by_key() -> None:
    layout = {"format": "json", **by("p{{partition}}/{{any}}.json", "dumps")}
    keys = ["dumps/p1/b.json", "dumps/p1/a.json", "dumps/p0/c.json"]
    objects, _ = found(keys, layout, ("t",))
    assert [[s.name.key for s in g.sets] for g in group_objects(objects)] == [
        ["dumps/p0/c.json"],
        ["dumps/p1/a.json", "dumps/p1/b.json"],
    ]


@pytest.mark.parametrize(
    ("template", "key", "place"),
    [
        ("{{topic}}/{{partition}}/{{start_offset}}", "t/1/20", ("t", 1, 20, None)),
        ("{{topic}}-{{partition}}-{{end_offset:padding=true}}", "t-1-000029", ("t", 1, None, 29)),
        ("{{partition}}/{{start_offset}}-{{end_offset}}.json", "1/20-29.json", ("t", 1, 20, 29)),
        ("{{key}}", "users/7", ("t", 0, None, None)),
        ("{{topic}}/{{partition}}/{{key}}.json", "t/3/a/b.json", ("t", 3, None, None)),
        ("{{any}}/{{any}}", "dump/part-0", ("t", 0, None, None)),
    ],
)
def test_templates_tell_what_they_name_with_and_without_extensions(
    template: str, key: str, place: tuple[Any, ...]
) -> None:
    [item], _ = found([key, "_restore/r1.json"], {"format": "json", **by(template)}, ("t",))
    assert (item.topic, item.kafka_partition, item.first_offset, item.last_offset) == place


def test_objects_that_tell_their_last_offset_are_read_in_its_order_and_two_of_one_are_told() -> None:
    layout = {"format": "json", **by("{{partition}}-{{end_offset}}.json")}
    objects, scanned = found(["0-10.json", "0-9.json", "0-09.json"], layout, ("t",), behavior_on_error="log")
    assert [o.key for o in objects] == ["0-09.json", "0-10.json"]
    assert scanned.report.lines == ["object 0-9.json: it ends where 0-09.json does, so records would come twice"]


def test_a_name_that_ends_before_it_begins_is_told() -> None:
    with pytest.raises(IntegrityError, match=r"5-4\.json: by its name it ends with offset 4, before it begins"):
        found(["5-4.json"], {"format": "json", **by("{{start_offset}}-{{end_offset}}.json")}, ("t",))


def test_by_a_template_keys_headers_and_tombstones_go_with_their_values() -> None:
    layout = {"format": "json", "keys_format": "json", "headers_format": "avro", "null_values": "write"}
    names = ["0/t+0+3.json", "0/t+0+3.keys.json.gz", "0/t+0+3.headers.avro"]
    deleted = [f"tombstone/t+0+9.{ending}" for ending in ("keys.json", "headers.avro")]
    template = by("{{topic}}/{{any}}/{{topic}}+{{partition}}+{{start_offset}}.json")
    objects, scanned = found([f"t/{name}" for name in (*names, *deleted)], {**layout, **template})
    [[values, tombstones]] = [g.sets for g in group_objects(objects)]
    assert [o and o.key for o in (values.value, values.key, values.headers)] == [f"t/{name}" for name in names]
    assert (tombstones.value, tombstones.name.is_tombstone, scanned.report.counts) == (None, True, {})


class RegionFolders:
    """Extends the time's folders by one of its own, as a partitioner of a user's would."""

    def __init__(self, layout: Any) -> None:
        self.layout = layout

    def folder(self, encoded_partition: str) -> Any:
        from kafka_s3_platform.core.partitioners.folders import TimeFolders

        region, _, rest = encoded_partition.partition("/")
        return TimeFolders(self.layout).folder(rest) if region.startswith("region=") else None


def test_a_partitioner_of_the_users_that_extends_the_times_is_read_back() -> None:
    layout = {**HOURLY, "partitioner": f"{__name__}.RegionFolders"}
    objects, scanned = found(
        [hour(12, 0).replace("topics/t/", "topics/t/region=eu/"), hour(13, 1)], layout, behavior_on_error="log"
    )
    assert [o.window for o in objects] == [(NOON, NOON + HOUR)]
    assert scanned.report.counts == {"misplaced": 1}
