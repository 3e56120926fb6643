"""Keys are those of the sinks that people come from, tell what they were made of, and are never used twice.

What the names of folders tell of the times below them, so that a walk leaves old ones out.
"""

import string
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kafka_s3_platform.connect.config.keys.names import compile_template
from kafka_s3_platform.core.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.formats.format_io import find_extension
from kafka_s3_platform.core.layouts.new_layout import new_key_reader, new_segment_layout
from kafka_s3_platform.core.layouts.segment_key import (
    KeyReader,
    ReadKey,
    SegmentKey,
    SegmentLayout,
    is_offsets_key,
    list_parts,
    make_offsets_key,
    strip_offsets_key,
)
from kafka_s3_platform.core.partitioners.folders import FieldFolders
from kafka_s3_platform.core.partitioners.partitioners import new_partitioner
from kafka_s3_platform_tests.conftest import present
from kafka_s3_platform_tests.partitioners.batches import batch_of, ms
from kafka_s3_platform_tests.sources.memory import source

HOUR = ms("2020-03-01T13:00:00+00:00")
ZOOZ_PATH = "'date'=YYYY-MM-dd/'hour'=HH"

TOPICS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249) | st.sampled_from(
    ["a", "a-1", "a-1-2", "a-00000-000000000000", "1", "0+0".replace("+", "-"), "a.1", "t.json", "a_1", "-", "."]
)
FOLDERS = st.lists(
    st.text(string.ascii_letters + string.digits + "._-=+@' ", min_size=1, max_size=12), min_size=1, max_size=4
)
SEGMENTS = st.builds(
    SegmentKey,
    topic=TOPICS,
    encoded_partition=FOLDERS.map("/".join) | st.sampled_from(["a", "a/b", "x_a", "t+0+5.json"]),
    kafka_partition=st.integers(0, 2**31 - 1) | st.integers(0, 12),
    first_offset=st.integers(0, 2**63 - 1) | st.integers(0, 12),
    extension=st.sampled_from(
        ["json", "json.gz", "avro", "keys.avro", "headers.json.gz", "gz", "index.json", "snappy.parquet"]
    ),
    epoch=st.none() | st.integers(0, 12) | st.integers(0, 2**63 - 1),
    ordinal=st.just(0) | st.integers(0, 12),
    hour_ms=st.just(HOUR),
)
LAYOUTS = st.sampled_from(
    [
        {"topics_dir": "topics"},
        {"topics_dir": ""},
        {"topics_dir": "a/b", "directory_delim": "|", "file_delim": "#"},
        {"topics_dir": "a/b+c", "offset_pad_width": 20},
        {"topics_dir": "a", "file_delim": "-"},
        {"topics_dir": "a", "file_delim": "_", "offset_pad_width": 0},
        {"key_layout": "block_gzip", "topics_dir": "p"},
        {"key_layout": "block_gzip", "topics_dir": ""},
        {"key_layout": "zooz", "topics_dir": "root"},
    ]
)

BY_DAY = {"partitioner": "Daily", "path_format": "YYYY-MM-dd", "partition_duration_ms": 86_400_000}
READ = st.sampled_from(
    [
        {"format": "json", "keys_format": "avro"},
        {"format": "json", "topics_dir": "", "partitioner": "Default"},
        {"format": "avro", "topics_dir": "a/b", "file_delim": "-", "partitioner": "Field", "partition_fields": ("f",)},
        {"format": "envelope.parquet", "directory_delim": "|", "path_format": "YYYY|MM|dd|HH"},
        {"key_layout": "block_gzip", "format": "block_gzip", "topics_dir": "", **BY_DAY},
        {"key_layout": "zooz", "format": "bytes", "topics_dir": "root", "path_format": ZOOZ_PATH},
    ]
)
FOLDERS_READ = {"Default": "partition={p}", "Field": "f=a-b", "Daily": "2020-03-01"}

PIECES = st.sampled_from(
    [
        "{{topic}}",
        "{{partition}}",
        "{{partition:padding=true}}",
        "{{start_offset}}",
        "{{start_offset:padding=true}}",
        "{{timestamp:unit=yyyy}}",
        "{{timestamp:unit=HH}}",
        *("-", "_", ".", "/", "+", "@", "x", "0", "-7", "9-", "p=", ".gz"),
    ]
)

ANYTHING = "{{any}}-{{any}}-{{any}}/{{topic}}-{{any}}-{{any}}-{{partition}}_{{start_offset}}.json"

YEAR = (ms("2026-01-01T00:00:00+00:00"), ms("2027-01-01T00:00:00+00:00"))
MONTH = (ms("2026-02-01T00:00:00+00:00"), ms("2026-03-01T00:00:00+00:00"))
DAY = (ms("2026-02-03T00:00:00+00:00"), ms("2026-02-04T00:00:00+00:00"))
FIVE = (ms("2026-02-03T05:00:00+00:00"), ms("2026-02-03T06:00:00+00:00"))

CONNECT = {"partitioner": "Hourly"}
AIVEN = {"key_layout": "template", "file_name_template": "{{topic}}/{{timestamp:unit=yyyy}}-{{timestamp:unit=MM}}/x"}
BY_KEY = {"key_layout": "template", "file_name_template": "{{key}}/{{timestamp:unit=yyyy}}/{{topic}}-{{start_offset}}"}
WEEKS = {"partitioner": "TimeBased", "path_format": "xxxx/ww/e", "partition_duration_ms": 86_400_000}


def layout_of(**settings: Any) -> SegmentLayout:
    return new_segment_layout(LayoutSettings(**settings))


def template(text: str, **settings: Any) -> SegmentLayout:
    return layout_of(**{"key_layout": "template", "file_name_template": text, "topics_dir": "", **settings})


def encoded(time: str, **settings: Any) -> str:
    """The encoded partition of a record with that time."""
    found = new_partitioner(LayoutSettings(**settings)).encode(batch_of([1]), np.array([ms(time)], np.int64))
    return str(found.names[found.codes[0]])


def test_nine_records_with_flush_size_three_are_the_objects_of_confluent_s_quick_start() -> None:
    layout = LayoutSettings(partitioner="Default", flush_size=3)
    folder = encoded("2020-01-01T00:00:00+00:00", partitioner="Default")
    segments = [SegmentKey("s3_topic", folder, 0, first, "avro") for first in range(0, 9, 3)]
    assert [new_segment_layout(layout).key(segment) for segment in segments] == [
        "topics/s3_topic/partition=0/s3_topic+0+0000000000.avro",
        "topics/s3_topic/partition=0/s3_topic+0+0000000003.avro",
        "topics/s3_topic/partition=0/s3_topic+0+0000000006.avro",
    ]


def test_a_key_reads_as_connect_writes_it() -> None:
    key = layout_of().key(SegmentKey("a.b", "year=2013/month=01", 3, 42, "parquet"))
    assert key == "topics/a.b/year=2013/month=01/a.b+3+0000000042.parquet"


def test_the_folders_of_confluent_cloud_s_example() -> None:
    settings = {"topics_dir": "json_logs/hourly", "path_format": "'dt'=YYYY-MM-dd/'hr'=HH"}
    folder = encoded("2020-02-06T09:10:00+00:00", **settings)
    key = layout_of(**settings).key(SegmentKey("pageviews", folder, 0, 0, "json.gz"))
    assert key == "json_logs/hourly/pageviews/dt=2020-02-06/hr=09/pageviews+0+0000000000.json.gz"


def test_the_files_of_block_gzip_s_example() -> None:
    settings: dict[str, Any] = {
        "key_layout": "block_gzip",
        "topics_dir": "connect-system-test/systest",
        "partitioner": "Daily",
        "path_format": "YYYY-MM-dd",
        "partition_duration_ms": 86_400_000,
    }
    folder = encoded("2016-02-24T23:59:59+00:00", **settings)
    names = [(0, 0, "gz"), (0, 0, "index.json"), (0, 100, "gz"), (0, 100, "index.json"), (2, 0, "gz")]
    assert [layout_of(**settings).key(SegmentKey("system-test", folder, *name)) for name in names] == [
        "connect-system-test/systest/2016-02-24/system-test-00000-000000000000.gz",
        "connect-system-test/systest/2016-02-24/system-test-00000-000000000000.index.json",
        "connect-system-test/systest/2016-02-24/system-test-00000-000000000100.gz",
        "connect-system-test/systest/2016-02-24/system-test-00000-000000000100.index.json",
        "connect-system-test/systest/2016-02-24/system-test-00002-000000000000.gz",
    ]


def test_the_path_of_zooz() -> None:
    settings = {"key_layout": "zooz", "topics_dir": "root/path", "path_format": ZOOZ_PATH}
    folder = encoded("2019-03-12T12:00:01+00:00", **settings)
    key = layout_of(**settings).key(SegmentKey("my-topic", folder, 3, 42, "json"))
    assert key == "root/path/date=2019-03-12/hour=12/3_42.json"
    at_root = layout_of(**{**settings, "topics_dir": ""})
    assert at_root.key(SegmentKey("t", folder, 0, 0, "json")) == "date=2019-03-12/hour=12/0_0.json"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{{topic}}-{{partition}}-{{start_offset}}.gz", "mytopic-1-1.gz"),
        ("{{topic}}-{{partition}}-{{start_offset:padding=true}}.gz", "mytopic-1-00000000000000000001.gz"),
        ("{{topic}}-{{partition:padding=true}}-{{start_offset}}.gz", "mytopic-0000000001-1.gz"),
        ("{{topic}}-part{{partition}}-off{{start_offset}}", "mytopic-part1-off1"),
        (
            (
                "{{topic}}-{{partition}}-{{start_offset}}-{{timestamp:unit=yyyy}}{{timestamp:unit=MM}}"
                "{{timestamp:unit=dd}}.gz"
            ),
            "mytopic-1-1-20200301.gz",
        ),
        (
            (
                "{{ topic }}/{{timestamp:unit=YYYY}}/{{timestamp:unit=MM}}/{{timestamp:unit=dd}}/{{timestamp:unit=HH}}/"
                "{{topic}}+{{partition}}+{{start_offset}}.json"
            ),
            "mytopic/2020/03/01/14/mytopic+1+1.json",
        ),
    ],
)
def test_the_file_names_of_aiven(text: str, key: str) -> None:
    layout = template(text, timezone="Europe/Paris")
    assert layout.key(SegmentKey("mytopic", "any", 1, 1, hour_ms=HOUR)) == key
    found = present(layout.parse(key))
    assert (found.topic, found.kafka_partition, found.first_offset) == ("mytopic", 1, 1)


def test_a_template_s_times_are_zeros_out_of_range_and_its_folder_and_extension_are_added() -> None:
    text = "{{timestamp:unit=yyyy}}/{{timestamp:unit=HH}}/{{topic}}-{{partition}}-{{start_offset}}"
    layout = template(text, topics_dir="archive")
    key = layout.key(SegmentKey("t", "__out_of_range__", 0, 5, "keys.avro"))
    assert key == "archive/0000/00/t-0-5.keys.avro"


@pytest.mark.parametrize(
    ("layout", "key"),
    [
        ({}, "topics/t/e/t+0+0000000007{}.json"),
        ({"topics_dir": "", "offset_pad_width": 1}, "t/e/t+0+7{}.json"),
        ({"offset_pad_width": 3}, "topics/t/e/t+0+007{}.json"),
        ({"file_delim": "-", "directory_delim": "|"}, "topics|t|e|t-0-0000000007{}.json"),
        ({"key_layout": "block_gzip"}, "topics/e/t-00000-000000000007{}.json"),
        ({"key_layout": "zooz"}, "topics/e/0_7{}.json"),
        (
            {"key_layout": "template", "file_name_template": "{{topic}}/{{start_offset}}/p{{partition}}"},
            "topics/t/7{}/p0.json",
        ),
    ],
)
def test_objects_that_are_rewritten_or_begin_inside_a_record_s_outputs_have_keys_of_their_own(
    layout: dict[str, Any], key: str
) -> None:
    keys = layout_of(**layout)
    segment = SegmentKey("t", "e", 0, 7, "json")
    assert keys.key(segment) == key.format("")
    assert keys.key(replace(segment, epoch=12)) == key.format("+12")
    assert keys.key(replace(segment, epoch=0, ordinal=3)) == key.format("@3+0")


@given(settings=LAYOUTS, segment=SEGMENTS)
def test_a_key_is_parsed_into_what_it_was_made_of(settings: dict[str, Any], segment: SegmentKey) -> None:
    layout = layout_of(**settings)
    assert layout.parse(layout.key(segment)) == _expected(settings, segment)


@given(settings=LAYOUTS, one=SEGMENTS, other=SEGMENTS)
def test_different_objects_never_get_the_same_key(settings: dict[str, Any], one: SegmentKey, other: SegmentKey) -> None:
    assume(_expected(settings, one) != _expected(settings, other))
    layout = layout_of(**settings)
    assert layout.key(one) != layout.key(other)


def _expected(settings: dict[str, Any], segment: SegmentKey) -> SegmentKey:
    """Zooz's keys hold no topic, a template's no encoded partition, and none its hour as a number."""
    key_layout = settings.get("key_layout", "connect")
    if key_layout == "zooz":
        return replace(segment, topic="", hour_ms=None)
    return replace(
        segment, encoded_partition="" if key_layout == "template" else segment.encoded_partition, hour_ms=None
    )


@given(settings=READ, segment=SEGMENTS, at=st.integers(0, 1))
def test_a_key_that_is_written_is_read_back(settings: dict[str, Any], segment: SegmentKey, at: int) -> None:
    layout = LayoutSettings(**settings)
    folder = FOLDERS_READ.get(layout.partitioner) or encoded("2020-03-01T13:00:00+00:00", **settings)
    parts = list_parts(layout)
    part = parts[at % len(parts)]
    written = replace(
        segment,
        encoded_partition=folder.format(p=segment.kafka_partition),
        extension=find_extension(layout, part),
        hour_ms=None,
    )
    read = reader_of(layout, segment.topic).read(new_segment_layout(layout).key(written))
    assert isinstance(read, ReadKey)
    assert (read.segment, read.part) == (written, part)
    if layout.partitioner in {"Hourly", "Daily"}:
        assert read.window is not None
        assert read.window[0] <= HOUR < read.window[1]


def reader_of(layout: LayoutSettings, topic: str) -> KeyReader:
    return new_key_reader(ConnectorConfig.model_construct(layout=layout, topics=(topic,)))


def template_of(pieces: list[str]) -> str:
    return "".join(["{{topic}}/{{partition}}-", *pieces, "/{{start_offset}}"][len(pieces) % 2 :])


@given(pieces=st.lists(PIECES, min_size=3, max_size=8), one=SEGMENTS, other=SEGMENTS)
def test_a_template_that_is_not_refused_tells_objects_apart(
    pieces: list[str], one: SegmentKey, other: SegmentKey
) -> None:
    text = template_of(pieces)
    settings = {"key_layout": "template", "file_name_template": text}
    try:
        layout = layout_of(**settings)
    except ConfigError:
        return
    for segment in (one, other):
        assert layout.parse(layout.key(segment)) == _expected(settings, segment), text
    if _expected(settings, one) != _expected(settings, other):
        assert layout.key(one) != layout.key(other), text


@given(pieces=st.lists(PIECES, min_size=3, max_size=8), segment=SEGMENTS, ending=st.sampled_from(["", "gz"]))
def test_a_key_that_is_written_by_a_template_is_read_back(pieces: list[str], segment: SegmentKey, ending: str) -> None:
    text = template_of(pieces)
    assume(not text.endswith(".gz"))
    layout = LayoutSettings(key_layout="template", file_name_template=text, extension=ending)
    try:
        key = new_segment_layout(layout).key(replace(segment, extension=ending))
    except ConfigError:
        return
    read = reader_of(layout, segment.topic).read(key)
    assert isinstance(read, ReadKey), text
    folder = key.removeprefix("topics/").rpartition("/")[0]
    assert read.segment == replace(segment, encoded_partition=folder, extension=ending, hour_ms=None), text
    if "unit=yyyy" in text:
        assert read.window is not None
        assert read.window[0] <= HOUR < read.window[1]


def test_a_padded_number_that_touches_another_is_read_by_its_width() -> None:
    text = "{{topic}}/{{partition:padding=true}}{{start_offset:padding=true}}"
    layout = LayoutSettings(key_layout="template", file_name_template=text, extension="", topics_dir="")
    read = reader_of(layout, "t").read("t/000000000300000000000000000042")
    assert isinstance(read, ReadKey)
    assert (read.segment.kafka_partition, read.segment.first_offset) == (3, 42)


@pytest.mark.parametrize(
    "key",
    [
        "topics/t/hour=01/u+0+7.parquet",
        "topics/t/hour=01/t+x+7.parquet",
        "topics/t/hour=01/t+0.parquet",
        "topics/t/t+0+7.parquet",
        "elsewhere/t/hour=01/t+0+7.parquet",
        "topics/t/hour=01/_SUCCESS",
        "topics/.write-check",
        "topics/t/hour=01/t+٣+7.parquet",
        "topics",
        "",
    ],
)
def test_a_key_that_is_none_of_connects_is_none_of_ours(key: str) -> None:
    assert layout_of().parse(key) is None


@pytest.mark.parametrize(
    "key",
    ["", "x", "topics/e/t-0000-000000000000.gz", "topics/e/t-00000-00000000000.gz", "topics/t-00000-000000000000.gz"],
)
def test_a_key_of_another_layout_is_none_of_ours(key: str) -> None:
    assert layout_of(key_layout="block_gzip").parse(key) is None
    assert layout_of(key_layout="zooz").parse(key) is None
    assert template("{{topic}}/{{partition}}/{{start_offset}}").parse(key) is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"directory_delim": "_"}, "can be a part of a topic's name"),
        ({"directory_delim": "+"}, "can be a part of a file's name"),
        ({"directory_delim": "#", "file_delim": "#"}, "can be a part of a file's name"),
        ({"directory_delim": "\n"}, "control characters"),
        ({"directory_delim": ""}, "cannot be empty"),
        ({"file_delim": "0"}, "cannot hold digits"),
        ({"file_delim": "/"}, "can be a part of a file's name"),
        ({"file_delim": "/", "directory_delim": "|"}, "cannot hold digits or '/'"),
        ({"key_layout": "template", "file_name_template": None}, r"needs \{\{topic\}\}"),
    ],
)
def test_delimiters_and_templates_that_do_not_tell_objects_apart_are_refused(
    settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        layout_of(**settings)


@pytest.mark.parametrize(
    ("delim", "key"),
    [("/", "topics/t/partition=0/t+0+0000000001.avro"), ("/", "0_17+4.log"), ("|", "topics|t|f|t+0+1.keys.bin")],
)
def test_the_object_that_keeps_offsets_is_told_by_its_name_and_tells_whose_they_are(delim: str, key: str) -> None:
    own = make_offsets_key(key, delim)
    assert own.rpartition(delim)[2].startswith("_")
    assert (is_offsets_key(own, delim), is_offsets_key(key, delim)) == (True, False)
    assert (strip_offsets_key(own, delim), strip_offsets_key(key, delim)) == (key, key)


def test_a_template_says_what_every_key_begins_with() -> None:
    assert compile_template("a/b-{{topic}}-{{partition}}-{{start_offset}}").prefix == "a/b-"
    assert compile_template("{{topic}}-{{partition}}-{{start_offset}}").prefix == ""


def read_anything(key: str, template: str = ANYTHING) -> object:
    layout = LayoutSettings(key_layout="template", file_name_template=template, topics_dir="")
    return new_key_reader(ConnectorConfig.model_construct(layout=layout, topics=("t",))).read(key)


def test_a_template_with_several_texts_of_any_kind_reads_what_is_of_it() -> None:
    found = read_anything("a-b-c-d/t-1-2-3-4_5.json")
    assert isinstance(found, ReadKey)
    assert (found.segment.kafka_partition, found.segment.first_offset) == (4, 5)


@pytest.mark.parametrize(
    ("template", "key", "read"),
    [
        ("{{key}}-{{any}}-{{topic}}+{{partition}}+{{start_offset}}", "a/b-c-d-t+4+0005@2+7", ("t", 4, 5, 2, 7)),
        ("{{key}}-{{any}}-{{topic}}", "-x-t", ("t", 0, None, 0, None)),
        ("{{topic}}/{{any}}-{{key}}-{{topic}}", "a-b/1-2-a-b", ("a-b", 0, None, 0, None)),
        ("{{key}}/{{any}}/{{topic}}/{{start_offset:padding=true}}-{{topic}}", "k/x/a-b/07-a-b", ("a-b", 0, 7, 0, None)),
    ],
)
def test_a_template_of_three_texts_of_any_length_reads_its_keys(
    template: str, key: str, read: tuple[str | int | None, ...]
) -> None:
    found = read_anything(key, template)
    assert isinstance(found, ReadKey)
    of = found.segment
    assert (of.topic, of.kafka_partition, of.first_offset, of.ordinal, of.epoch) == read


@pytest.mark.parametrize("text", ["-", "-1", "a"])
@pytest.mark.parametrize(
    "template", [ANYTHING, "{{key}}-{{any}}-{{topic}}", "{{topic}}/{{key}}-{{any}}-{{topic}}-{{start_offset}}"]
)
def test_the_longest_key_that_is_not_of_the_template_is_refused_in_little_time(template: str, text: str) -> None:
    key = text * (1000 // len(text)) + "/!/t-1_2.json"
    start = time.process_time()
    assert not isinstance(read_anything(key, template), ReadKey)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("folder", "is_one"),
    [
        ("a=1/b=2/c=3/d=4/e=", True),
        ("a=/b=1/2/c=/c=3/d=/e=", True),
        ("b=2/a=1/c=3/d=4/e=5", False),
        ("x/a=1/b=2/c=3/d=4/e=5", False),
        ("a=1" + "/b=" * 50 + "/c=" * 50 + "/d=" * 50 + "/e" * 50, False),
    ],
)
def test_folders_of_fields_are_read_whatever_their_values_hold_and_refused_in_little_time(
    folder: str, *, is_one: bool
) -> None:
    layout = LayoutSettings(partitioner="Field", partition_fields=tuple("abcde"), format="json")
    start = time.process_time()
    assert (FieldFolders(layout).folder(folder) is not None) is is_one
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("layout", "folder", "span"),
    [
        (CONNECT, "orders", None),
        (CONNECT, "orders/year=2026", YEAR),
        (CONNECT, "orders/year=2026/month=02", MONTH),
        (CONNECT, "orders/year=2026/month=02/day=03", DAY),
        (CONNECT, "orders/year=2026/month=02/day=03/hour=05", FIVE),
        (CONNECT, "orders/year=2026/month=02/day=03/hour=05/more", None),
        (CONNECT, "orders/month=02", None),
        (CONNECT, "orders/__out_of_range__", None),
        ({**CONNECT, "path_format": "'in/'YYYY/MM"}, "orders/in/2026", YEAR),
        ({**CONNECT, "path_format": "MM/YYYY"}, "orders/02", None),
        ({**CONNECT, "path_format": "MM/YYYY"}, "orders/02/2026", MONTH),
        (WEEKS, "orders/2026", None),
        ({**CONNECT, "directory_delim": "_", "path_format": "YYYY_MM"}, "orders_2026_02", MONTH),
        ({"partitioner": "Default"}, "orders/partition=0", None),
        ({"partitioner": "Field", "partition_fields": ("year",)}, "orders/year=2026", None),
        ({**CONNECT, "key_layout": "block_gzip", "path_format": "YYYY-MM-dd"}, "2026-02-03", DAY),
        (AIVEN, "orders/2026-02", MONTH),
        (AIVEN, "orders", None),
        (BY_KEY, "a/2026", None),
        ({"key_layout": "lenses", "format": "lenses.json"}, "orders/0", None),
    ],
)
def test_a_folder_tells_the_span_of_all_times_below_it_or_nothing(
    layout: dict[str, Any], folder: str, span: tuple[int, int] | None
) -> None:
    assert new_key_reader(source({"format": "json", **layout})).find_span(folder) == span
