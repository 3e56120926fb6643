"""Restores from the files of S3 sources: the quickstart of Confluent's source, and what goes wrong on the way.

Restores of objects whose content is another than their names or the file lead to expect.

A topic of Debezium's tables and of event types: archived by its registry, and restored from the sink's objects.
"""

import gzip
import io
import json
import logging
import re
import tarfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import cramjam
import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from pydantic import SecretStr

from kafka_s3_platform.connect.restore import foreign_source
from kafka_s3_platform.core.config.settings import ConverterSettings, RegistrySettings, TransformSettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError, PreflightError, RecordError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.restore import execution
from kafka_s3_platform.core.restore.request import Outgoing, RecordFilter, judge_report, list_missing
from kafka_s3_platform.core.restore.target_topic import Regex
from kafka_s3_platform.operate.groups.group_offsets import read_finished_restore
from kafka_s3_platform_tests.archive.event_types import BY_ID, FEED, UNION, Event, events
from kafka_s3_platform_tests.archive.values import F1, avro, framed
from kafka_s3_platform_tests.config.test_seeds import SOURCE
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.children import Child
from kafka_s3_platform_tests.kafka.topics import records_of, values
from kafka_s3_platform_tests.kafka.wire import xerial
from kafka_s3_platform_tests.restore.foreign import JSON, LINES, SourceLab, asked, numbered, numbers, restored
from kafka_s3_platform_tests.restore.own import delete_topic, run_restore
from kafka_s3_platform_tests.sources.memory import source_of
from kafka_s3_platform_tests.support import NOON, Sent, archived, connector, produce

MAPPER = TransformSettings(alias="lines", type="kafka_s3_platform_tests.transforms.example_mappers.LinesMapper")


TOPIC = [event for event in (*events("customers", "orders"), *FEED, *UNION) if event.schema]


@pytest.fixture
def s3_topic(lab: Lab, registry: RegistrySettings) -> Iterator[str]:
    """The topic of the quickstarts, archived by that of the sink: value1 to value9, twice."""
    with ClusterAdmin(lab.kafka) as admin:
        if "s3_topic" in admin.list_topics():
            delete_topic(lab.kafka, "s3_topic")
            time.sleep(1)
    topic = lab.create("s3_topic")
    nine = framed(registry, topic, F1, [{"f1": f"value{n}"} for n in range(1, 10)])
    produce(lab.kafka, topic, [Sent(v) for v in nine * 2])
    layout = {"format": "avro", "codec": "null", "partitioner": "Default", "flush_size": 3}
    archived(connector(lab.kafka, lab.store, topic, layout=layout, records=avro(registry)))
    yield topic
    for name in ("s3_topic", "copy_of_s3_topic", "json_of_s3_topic", "schema_of_s3_topic"):
        with ClusterAdmin(lab.kafka) as admin:
            found = name in admin.list_topics()
        if found:
            delete_topic(lab.kafka, name)


@pytest.mark.usefixtures("s3_topic")
def test_the_quickstart_sends_its_18_records_object_for_object(lab: SourceLab, registry: RegistrySettings) -> None:
    converter = "value.converter=io.confluent.connect.avro.AvroConverter\nvalue.converter.schema.registry.url="
    config = lab.load(SOURCE, f"{converter}{registry.url}\n")
    report = restored(config, restore_id="quickstart")
    assert (report.topic, report.to_topic, report.record_count) == ("s3_topic", "copy_of_s3_topic", 18)
    assert (report.sent_count, report.object_count, report.verified) == (18, 6, True)
    rows = values(lab.kafka, "copy_of_s3_topic")
    with SchemaRegistryClient({"url": registry.url}) as client:
        there = client.get_latest_version("copy_of_s3_topic-value")
    assert there.schema is not None
    assert {row[:5] for row in rows} == {b"\0" + there.schema_id.to_bytes(4, "big")}
    schema = fastavro.parse_schema(json.loads(there.schema.schema_str or ""))
    found = [fastavro.schemaless_reader(io.BytesIO(row[5:]), schema, None) for row in rows]
    assert found == [{"f1": f"value{n}"} for n in range(1, 10)] * 2
    assert any("18 records: no object has their timestamp" in note for note in report.notes)
    assert any("how objects were read: records as avro counts them" in note for note in report.notes)
    assert "by the connector's file, objects hold no keys: records are sent with a null key" in report.notes
    assert sum(p.altered_timestamps for p in report.kafka_partitions) == 18

    again = restored(config, restore_id="quickstart")
    assert (again.already_finished, again.record_count) == (True, 18)
    assert len(values(lab.kafka, "copy_of_s3_topic")) == 18


@pytest.mark.usefixtures("s3_topic")
def test_the_same_objects_are_sent_as_json_where_the_converter_says_so(lab: SourceLab) -> None:
    report = restored(lab.load(SOURCE.replace("copy_of_$0", "json_of_$0"), JSON))
    assert (report.record_count, report.to_topic) == (18, "json_of_s3_topic")
    nine = [b'{"f1":"value%d"}' % n for n in range(1, 10)]
    assert values(lab.kafka, "json_of_s3_topic") == nine * 2

    with_schemas = restored(lab.load(SOURCE.replace("copy_of_$0", "schema_of_$0"), JSON.partition("\n")[0] + "\n"))
    assert with_schemas.verified
    found = [json.loads(v) for v in values(lab.kafka, "schema_of_s3_topic")]
    schema = {"type": "struct", "fields": [{"type": "string", "optional": False, "field": "f1"}], "optional": False}
    assert found == [{"schema": schema | {"name": F1["name"]}, "payload": json.loads(v)} for v in nine * 2]


def test_each_topic_found_goes_to_one_of_its_own_from_all_kafka_partitions(lab: SourceLab) -> None:
    one, two = f"{lab.topic}-1", f"{lab.topic}-2"
    lab.put(one, 0, numbered(0, 3))
    lab.put(one, 0, numbered(10, 2), 1)
    lab.put(one, 7, numbered(3, 1))
    lab.put(two, 5, numbered(20, 4))
    report = restored(lab.load(LINES, JSON), (), "{topic}-copy")
    assert (report.topic, report.record_count) == (f"{one}, {two}", 10)
    assert [(p.topic, p.kafka_partition, p.record_count, p.first_source_offset) for p in report.kafka_partitions] == [
        (one, 0, 4, 0),
        (one, 1, 2, 0),
        (two, 0, 4, 5),
    ]
    copies = [(f"{one}-copy", 0), (f"{one}-copy", 1), (f"{two}-copy", 0)]
    assert [numbers(lab.kafka, *c) for c in copies] == [[0, 1, 2, 3], [10, 11], [20, 21, 22, 23]]

    alone = restored(lab.load(LINES, JSON), (two,), "{topic}-again")
    assert (alone.topic, alone.to_topic, alone.record_count) == (two, f"{two}-again", 4)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_what_was_killed_goes_on_with_its_plan_and_sends_all_once(
    lab: SourceLab, tmp_path: Path, delivery: str
) -> None:
    # Every value twice, so that only its place tells a repeated one.
    for first in range(0, 3000, 100):
        lab.put(lab.topic, first, [v for v in numbered(first // 2, 50) for _ in range(2)])
    target = lab.create(f"{lab.topic}-copy")
    same = {"restore_id": lab.topic, "delivery": delivery}
    given = asked(lab.load(LINES, JSON), (), "{topic}-copy", records_per_second=600, **same)
    for goal in (400, 1200):
        process = Child(tmp_path / "said", run_restore, given, 100, 100)
        with ClusterAdmin(lab.kafka) as admin:
            while admin.frontiers(target, [0])[0].high_watermark < goal:
                assert not process.has_ended, f"it ended before it was killed: {process.said}"
                time.sleep(0.05)
        process.kill()
    lab.put(lab.topic, 3000, numbered(9000, 5))

    report = restored(lab.load(LINES, JSON), (), "{topic}-copy", **same)

    assert numbers(lab.kafka, target) == [n for n in range(1500) for _ in range(2)]
    assert (report.record_count, report.object_count, report.verified) == (3000, 30, True)
    assert 0 < report.sent_count < 3000
    assert not any("is not empty" in note for note in report.notes)


def test_while_it_sends_the_log_tells_records_bytes_and_time_left(
    lab: SourceLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for first in range(0, 400, 20):
        lab.put(lab.topic, first, numbered(first, 20))
    monkeypatch.setattr(execution, "PROGRESS_SECONDS", 0.5)
    caplog.set_level(logging.INFO)
    restored(lab.load(LINES, JSON), (), "{topic}-copy", restore_id="r", records_per_second=60, delivery="at_least_once")
    told = [
        re.search(r"restore r: (\d+) records, \d+ records/s, (\d+)% .*bytes, about \d+ s left", m)
        for m in caplog.messages
    ]
    found = [(int(m[1]), int(m[2])) for m in told if m]
    # Objects are about equally large.
    assert found
    assert all(abs(share - records / 4) < 10 for records, share in found)


def test_of_a_corrupt_object_nothing_is_sent_and_ignored_it_is_skipped_alone(
    lab: SourceLab,
) -> None:
    lab.put(lab.topic, 0, numbered(0, 3))
    bad = lab.put(lab.topic, 3, numbered(3, 3))
    lab.put(lab.topic, 6, numbered(6, 3))
    body = lab.s3.get_object(Bucket=lab.store.bucket, Key=bad)["Body"].read()
    lab.put_object(bad, body[:-4])
    with pytest.raises(
        IntegrityError,
        match=r"=0/.*\+0\+0000000003.json .*\nProgress of restore .*: no record is noted as delivered to",
    ):
        restored(lab.load(LINES, JSON), (), "{topic}-failed")
    assert numbers(lab.kafka, f"{lab.topic}-failed") == []
    with pytest.raises(
        IntegrityError, match=r"\+0\+0000000003.json .*\nProgress of restore .*: no record is noted as delivered to"
    ):
        restored(lab.load(LINES, JSON), (), "{topic}-failed", records=RecordFilter(latest_per_key=True))

    report = restored(lab.load(LINES, JSON + "behavior.on.error=ignore\n"), (), "{topic}-ignored")
    assert numbers(lab.kafka, f"{lab.topic}-ignored") == [0, 1, 2, 6, 7, 8]
    assert (report.record_count, report.verified, len(report.skipped)) == (6, True, 1)
    assert bad in report.skipped[0]


def test_a_request_may_be_stricter_and_go_on_without_the_bad_object(
    lab: SourceLab,
) -> None:
    keys = [lab.put(lab.topic, first, numbered(first, 3)) for first in (0, 3, 6)]
    lab.put_object(keys[1], b'{"n":3}\n{"n')
    file = lab.load(LINES, JSON + "behavior.on.error=ignore\n")
    same: dict[str, Any] = {"restore_id": lab.topic, "records_per_second": 1}
    with pytest.raises(IntegrityError, match=r"\+0\+0000000003\.json"):
        restored(file, (), "{topic}-copy", behavior_on_error="fail", **same)
    sent_before = numbers(lab.kafka, f"{lab.topic}-copy")
    assert sent_before == [0, 1, 2][: len(sent_before)]

    report = restored(file, (), "{topic}-copy", **same)
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [0, 1, 2, 6, 7, 8]
    assert (report.record_count, report.sent_count, len(report.skipped)) == (6, 6 - len(sent_before), 1)
    assert keys[1] in report.skipped[0]


def test_an_object_missing_between_two_others_is_told_as_a_gap_of_offsets(lab: SourceLab) -> None:
    for first in (0, 20):
        lab.put(lab.topic, first, numbered(first, 10))
    config, gap = lab.load(LINES, JSON), f"{lab.topic}-0: offsets [10, 20) are in no object"
    counted = restored(config, (), "{topic}-copy", dry_run=True, exact=True)
    report = restored(config, (), "{topic}-copy")
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [*range(10), *range(20, 30)]
    assert [found.text[: len(gap)] for found in (*counted.gaps, *report.gaps)] == [gap, gap]


def test_a_window_over_objects_that_overlap_sends_nothing(lab: SourceLab) -> None:
    for hour, first in ((12, 0), (13, 5)):
        key = f"topics/{lab.topic}/year=2026/month=01/day=01/hour={hour}/{lab.topic}+0+{first}.json"
        body = b"".join(b'{"n":%d}\n' % n for n in range(first, first + 10))
        lab.put_object(key, body)
    config = lab.load(LINES, JSON + "partitioner.class=io.confluent.connect.storage.partitioner.HourlyPartitioner\n")
    with pytest.raises(PreflightError, match="a window of offsets would choose others"):
        restored(config, (), "{topic}-copy", from_offset=2, to_offset=12)
    with ClusterAdmin(lab.kafka) as admin:
        assert f"{lab.topic}-copy" not in admin.list_topics()
    report = restored(config, (), "{topic}-all")
    assert report.record_count == 20
    assert any("order differs from the source's" in note for note in report.notes)
    verdict = judge_report(report)
    assert (verdict.kind, "order differs from the source's: records of 1 objects" in verdict.text) == ("part", True)


def test_objects_of_another_format_are_missing_and_counted_in_the_verdict(lab: SourceLab) -> None:
    key = lab.put(lab.topic, 40, numbered(40, 3))
    for first in (43, 46):
        other = key.replace("40.json", f"{first}.avro")
        lab.put_object(other, b"x")
    report = restored(lab.load(LINES, JSON), (), "{topic}-copy")
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [40, 41, 42]
    verdict = judge_report(report)
    assert (verdict.kind, "2 objects or records skipped" in verdict.text) == ("part", True)


def test_names_that_do_not_parse_stop_a_restore_before_its_first_record_or_are_told(lab: SourceLab) -> None:
    lab.put(lab.topic, 0, numbered(0, 3))
    for name in ("nonsense.json", "readme.txt"):
        key = f"topics/{lab.topic}/partition=0/{name}"
        lab.put_object(key, b"x")
    with pytest.raises(IntegrityError, match=r"nonsense\.json"):
        restored(lab.load(LINES, JSON), (), "{topic}-copy")
    report = restored(lab.load(LINES, JSON), (), "{topic}-copy", behavior_on_error="log")
    assert (report.record_count, len(report.skipped)) == (3, 1)
    assert "nonsense.json" in report.skipped[0]
    assert any("readme.txt" in note for note in report.notes)


def test_two_topics_may_go_to_one_target(lab: SourceLab) -> None:
    one, two = f"{lab.topic}-1", f"{lab.topic}-2"
    lab.put(one, 0, numbered(0, 3))
    lab.put(two, 0, numbered(10, 3))
    report = restored(lab.load(LINES, JSON), (), Regex("(.*)-[12]", "$1-copy"))
    assert sorted(numbers(lab.kafka, f"{lab.topic}-copy")) == [0, 1, 2, 10, 11, 12]
    assert (report.to_topic, report.record_count, report.verified) == (f"{lab.topic}-copy", 6, True)


def test_a_router_of_the_file_may_lead_two_topics_to_one_target(lab: SourceLab) -> None:
    lab.put(f"{lab.topic}-1", 0, numbered(0, 3))
    lab.put(f"{lab.topic}-2", 0, numbered(10, 3))
    router = (
        "transforms=r\ntransforms.r.type=RegexRouter\ntransforms.r.regex=(.*)-[12]\ntransforms.r.replacement=$1-one\n"
    )
    report = restored(lab.load(LINES, JSON + router))
    assert sorted(numbers(lab.kafka, f"{lab.topic}-one")) == [0, 1, 2, 10, 11, 12]
    assert (report.to_topic, report.verified) == (f"{lab.topic}-one", True)


EXTRACTED = """\
transforms=x
transforms.x.type=io.confluent.connect.transforms.ExtractTopic$Value
transforms.x.field=t
"""


def routed(topic: str, names: str, start: int = 0) -> list[dict[str, Any]]:
    """Values for each letter of `names`: the record goes to the topic that ends with it; to none where it is '-'."""
    return [{"n": n} | ({} if name == "-" else {"t": f"{topic}-{name}"}) for n, name in enumerate(names, start)]


def test_records_that_name_their_topic_go_there_and_what_goes_nowhere_is_counted_once(lab: SourceLab) -> None:
    first, second, third = (f"{lab.topic}-{name}" for name in "abc")
    lab.put(lab.topic, 0, routed(lab.topic, "ab-a"))
    lab.put(lab.topic, 4, routed(lab.topic, "bca", 4))
    lab.put(lab.topic, 0, routed(lab.topic, "aa", 10), 1)
    config = lab.load(LINES, JSON + EXTRACTED)
    with pytest.raises(RecordError, match="value field t is missing or null"):
        restored(config, dry_run=True)
    lenient = lab.load(LINES, JSON + EXTRACTED + "behavior.on.error=ignore\n")
    with pytest.raises(PreflightError, match=f"target topic {third} does not exist"):
        restored(lenient, create_topic=False)

    forecast = restored(lenient, dry_run=True, exact=True)
    assert (forecast.refusals, forecast.record_count, forecast.before_transforms) == ((), 9, True)
    report = restored(lenient, restore_id="routed")
    assert (report.topic, report.to_topic) == (lab.topic, f"{first}, {second}, {third}")
    assert [numbers(lab.kafka, name) for name in (first, second, third)] == [[0, 3, 6], [1, 4], [5]]
    assert numbers(lab.kafka, first, 1) == [10, 11]
    assert (report.record_count, report.sent_count, report.verified) == (8, 8, True)
    assert list_missing(report) == ("1 record failed and left out",)
    assert {part.to_topic: part.record_count for part in report.parts} == {first: 5, second: 2, third: 1}
    again = restored(lenient, restore_id="routed")
    assert (again.already_finished, again.record_count) == (True, 8)

    alone = restored(lenient, (), f"{lab.topic}-a", restore_id="alone")
    assert (alone.record_count, alone.left_out_records.elsewhere) == (5, 3)


def test_what_was_killed_goes_on_in_each_topic_that_records_name(lab: SourceLab, tmp_path: Path) -> None:
    for first in range(0, 600, 100):
        lab.put(lab.topic, first, routed(lab.topic, "ab" * 50, first))
    targets = [lab.create(f"{lab.topic}-{name}") for name in "ab"]
    request = asked(lab.load(LINES, JSON + EXTRACTED), records_per_second=200, restore_id="killed")
    process = Child(tmp_path / "said", run_restore, request, 50, 50)
    with ClusterAdmin(lab.kafka) as admin:
        while sum(admin.frontiers(name, [0])[0].high_watermark for name in targets) < 150:
            assert not process.has_ended, f"it ended before it was killed: {process.said}"
            time.sleep(0.05)
    process.kill()
    report = restored(lab.load(LINES, JSON + EXTRACTED), restore_id="killed")
    assert [numbers(lab.kafka, name) for name in targets] == [list(range(0, 600, 2)), list(range(1, 600, 2))]
    assert (report.record_count, judge_report(report).kind) == (600, "good")
    assert 0 < report.sent_count < 600


def test_records_that_name_no_topic_are_told(lab: SourceLab) -> None:
    lab.put(lab.topic, 0, routed(lab.topic, "--"))
    report = restored(lab.load(LINES, JSON + EXTRACTED + "behavior.on.error=ignore\n"))
    [doubt] = report.doubts
    assert f"no record of {lab.topic}-0 goes to a topic: transforms drop 0" in doubt
    assert "2 records cannot be written and are left out. First, the record of source offset 0 fails in" in doubt
    assert (report.record_count, judge_report(report).kind) == (0, "part")


def test_a_field_that_names_a_topic_for_each_record_is_refused(lab: SourceLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_source, "MAX_TARGETS", 3)
    lab.put(lab.topic, 0, routed(lab.topic, "abc"))
    lab.put(lab.topic, 0, routed(lab.topic, "d"), 1)
    with pytest.raises(PreflightError, match=f"the records of {lab.topic} go to more than 3 topics, such as"):
        restored(lab.load(LINES, JSON + EXTRACTED))


def test_filters_see_records_as_sent_and_keys_or_offsets_choose_their_place(lab: SourceLab) -> None:
    lab.put(lab.topic, 0, numbered(0, 30))
    chosen = RecordFilter(sql="CAST(text(value)->>'$.n' AS INT) % 2 = 0")
    outgoing = Outgoing(partitioning="murmur2", provenance_headers=True)
    terms = {"records": chosen, "outgoing": outgoing, "target_kafka_partitions": 3, "from_offset": 4, "to_offset": 20}
    report = restored(lab.load(LINES, JSON), (), "{topic}-copy", **terms)
    copies = [numbers(lab.kafka, f"{lab.topic}-copy", p) for p in range(3)]
    assert sorted(n for found in copies for n in found) == list(range(4, 20, 2))
    assert (report.record_count, report.verified) == (8, True)
    headers = records_of(lab.kafka, f"{lab.topic}-copy", 0).column("headers").to_pylist()
    assert all(h["value"] == b"-1" for row in headers for h in row if h["key"] == "kafka_s3.source.timestamp")


def test_a_dry_run_writes_nothing_and_with_exact_it_counts_and_finds_what_is_bad(lab: SourceLab) -> None:
    lab.put(lab.topic, 0, numbered(0, 30))
    config = lab.load(LINES, JSON)
    before = lab.s3.list_objects_v2(Bucket=lab.store.bucket)["KeyCount"]
    planned = restored(config, (), "{topic}-copy", dry_run=True)
    assert (planned.object_count, planned.exact, planned.refusals) == (1, False, ())
    for window, count in (({}, 30), ({"to_offset": 12}, 12), ({"from_offset": 5, "to_offset": {0: 12}}, 7)):
        counted = restored(config, (), "{topic}-copy", dry_run=True, exact=True, **window)
        assert (counted.record_count, counted.exact) == (count, True)
    refused = restored(config, (), "{topic}-copy", dry_run=True, create_topic=False)
    assert "does not exist" in refused.refusals[0]
    with ClusterAdmin(lab.kafka) as admin:
        assert f"{lab.topic}-copy" not in admin.list_topics()
        admin.create_topic(f"{lab.topic}-limited", 1, configs={"retention.bytes": "1000000000000"})
    [unsure] = restored(config, (), "{topic}-limited", dry_run=True).refusals
    assert "the bytes that restored records take in the log of a kafka partition are unknown" in unsure
    assert lab.s3.list_objects_v2(Bucket=lab.store.bucket)["KeyCount"] == before


@pytest.mark.parametrize(
    ("outgoing", "said"),
    [
        (Outgoing(partitioning="murmur2"), "If keys decide the numbers, restore with exactly_once"),
        (Outgoing(transforms=(MAPPER,)), "cannot count the records that have arrived. Restore with exactly_once"),
    ],
)
def test_at_least_once_is_refused_where_a_run_could_not_go_on(lab: SourceLab, outgoing: Outgoing, said: str) -> None:
    lab.put(lab.topic, 0, ["one\ntwo", "three"])
    text = "value.converter=org.apache.kafka.connect.storage.StringConverter\n"
    given: dict[str, Any] = {"outgoing": outgoing, "target_kafka_partitions": 1}
    with pytest.raises(PreflightError, match=said):
        restored(lab.load(LINES, text), (), "{topic}-copy", delivery="at_least_once", **given)
    assert restored(lab.load(LINES, text), (), "{topic}-copy", **given).verified
    found = [v.decode() for v in values(lab.kafka, f"{lab.topic}-copy")]
    assert found == (["one", "two", "three"] if outgoing.transforms else ["one\ntwo", "three"])


def test_fewer_kafka_partitions_are_refused_and_more_are_left_unused(lab: SourceLab) -> None:
    for p in (0, 1):
        lab.put(lab.topic, 0, numbered(10 * p, 3), p)
    few, many = lab.create(f"{lab.topic}-few", 1), lab.create(f"{lab.topic}-many", 3)
    with pytest.raises(PreflightError, match="kafka partitions"):
        restored(lab.load(LINES, JSON), (), few)
    assert restored(lab.load(LINES, JSON), (), few, kafka_partitions=(0,)).record_count == 3
    restored(lab.load(LINES, JSON), (), many)
    assert [numbers(lab.kafka, many, p) for p in range(3)] == [[0, 1, 2], [10, 11, 12], []]


def test_a_source_without_a_router_goes_to_its_own_topic_only_when_told_so(lab: SourceLab) -> None:
    lab.create_topic()
    lab.put(lab.topic, 0, numbered(0, 3))
    with pytest.raises(PreflightError, match=r"is the source topic itself: .* name it .*: archive\.source\.cluster"):
        restored(lab.load(LINES, JSON))
    report = restored(lab.load(LINES, JSON), allow_source_topic=True)
    assert (report.to_topic, numbers(lab.kafka, lab.topic)) == (lab.topic, [0, 1, 2])


def test_topics_that_change_places_on_their_own_cluster_are_refused(lab: SourceLab) -> None:
    other = f"{lab.topic}-other"
    for topic in (lab.topic, other):
        lab.create(topic)
        lab.put(topic, 0, numbered(0, 3))
    swap = {lab.topic: other, other: lab.topic}
    refusals = restored(lab.load(LINES, JSON), (), swap, dry_run=True).refusals
    assert len(refusals) == len(swap)
    for topic, to_topic in swap.items():
        [refusal] = [refusal for refusal in refusals if refusal.startswith(f"{topic}: ")]
        assert f"{to_topic} is a source topic of this restore, and would hold the records of {topic} too" in refusal
    assert not restored(lab.load(LINES, JSON), (), swap, dry_run=True, allow_source_topic=True).refusals
    elsewhere = lab.load(LINES, f"{JSON}archive.source.cluster=elsewhere:9092\n")
    assert not restored(elsewhere, (), swap, dry_run=True).refusals


def test_another_clusters_objects_go_to_the_same_name_unless_it_is_archived(lab: SourceLab) -> None:
    lab.create_topic()
    lab.put(lab.topic, 0, numbered(0, 3))
    with ClusterAdmin(lab.kafka) as admin:
        own_id = admin.describe_cluster().cluster_id
    for own in (own_id, f"gone:9092,{lab.kafka.bootstrap_servers}"):
        with pytest.raises(PreflightError, match="is the source topic itself"):
            restored(lab.load(LINES, f"{JSON}archive.source.cluster={own}\n"))
    for other in ("MkU3OEVBNTcwNTJENDM2Qg", "elsewhere:9092"):
        config = lab.load(LINES, f"{JSON}archive.source.cluster={other}\n")
        planned = restored(config, dry_run=True)
        assert (planned.refusals, planned.to_topic) == ((), lab.topic)

    sink = lab.connector()
    with pytest.raises(
        PreflightError, match="is also archived by connector c: restored records would be archived again"
    ):
        restored(config, connectors=(sink,))
    told = restored(config, connectors=(sink,), allow_source_topic=True, dry_run=True)
    assert any("is also archived by connector c" in note for note in told.notes)
    assert restored(config, connectors=(sink.model_copy(update={"topics": ("other",)}),)).verified
    assert numbers(lab.kafka, lab.topic) == [0, 1, 2]


def test_of_objects_of_others_no_groups_are_translated_and_the_reason_is_told(lab: SourceLab) -> None:
    lab.put(lab.topic, 0, numbered(0, 3))
    config = lab.load(LINES, JSON)
    restored(config, (), "{topic}-copy", restore_id=lab.topic)
    with pytest.raises(ConfigError, match=rf"restore {lab.topic} .* objects that others wrote tell of none"):
        read_finished_restore(config, lab.topic)


def test_the_same_restore_id_for_something_else_is_refused_by_name(lab: SourceLab) -> None:
    lab.put(lab.topic, 0, numbered(0, 3))
    restored(lab.load(LINES, JSON), (), "{topic}-copy", restore_id=lab.topic)
    with pytest.raises(PreflightError, match=r"to_topic was .*-copy, is now .*-other"):
        restored(lab.load(LINES, JSON), (), "{topic}-other", restore_id=lab.topic)


@pytest.mark.parametrize(("past", "first"), [(timedelta(), 30), (timedelta(microseconds=500), 31)])
def test_whole_records_of_our_own_archive_need_only_their_keys(lab: SourceLab, past: timedelta, first: int) -> None:
    """Times between two milliseconds choose as exactly as whole ones: the start leaves out, the end includes."""
    lab.create_topic(2)
    sent = [Sent(b"v%d" % n, b"k", NOON + timedelta(minutes=n), (("h", None),), n % 2) for n in range(90)]
    lab.produce(sent)
    archived(lab.connector())
    config = lab.load(LINES.replace("io.confluent.connect.s3.format.json.JsonFormat", "EnvelopeParquetFormat"))
    window = {"from_time": NOON + timedelta(minutes=30) + past, "to_time": NOON + timedelta(minutes=70) + past}
    report = restored(
        config.model_copy(update={"layout": config.layout.model_copy(update={"partitioner": "Hourly"})}),
        (),
        "{topic}-copy",
        **window,
    )
    for p in (0, 1):
        found = records_of(lab.kafka, f"{lab.topic}-copy", p)
        there = [s for n, s in enumerate(sent) if n % 2 == p and first <= n < first + 40]
        assert found.column("value").to_pylist() == [s.value for s in there]
        assert [t.as_py() for t in found.column("timestamp")] == [s.timestamp for s in there]
    assert (report.record_count, sum(p.altered_timestamps for p in report.kafka_partitions)) == (40, 0)


def test_what_no_object_tells_cannot_be_asked_for(lab: SourceLab) -> None:
    with pytest.raises(ConfigError, match="have no ACLs"):
        restored(lab.load(LINES, JSON), restore_acls=True)
    with pytest.raises(ConfigError, match="have no schema ids"):
        restored(lab.load(LINES, JSON), outgoing=Outgoing(map_schema_ids=True))


def lines(first: int, count: int = 4) -> list[bytes]:
    return [b'{"n":%d}' % n for n in range(first, first + count)]


def text(first: int) -> bytes:
    return b"".join(line + b"\n" for line in lines(first))


def test_content_tells_the_compression_and_an_archive_of_files_is_refused(lab: SourceLab) -> None:
    lab.put_body(lab.topic, 0, "json", bytes(cramjam.lz4.compress(text(0))))
    lab.put_body(lab.topic, 4, "json.snappy", xerial(text(4)))
    lab.put_body(lab.topic, 8, "json", bytes(cramjam.snappy.compress(text(8))))
    lab.put_body(lab.topic, 12, "json.gz", bytes(cramjam.lz4.compress(text(12))))
    report = restored(lab.load(LINES, JSON), (lab.topic,), "{topic}-copy")
    assert (report.record_count, report.verified) == (16, True)
    assert values(lab.kafka, f"{lab.topic}-copy") == lines(0, 16)

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        found = tarfile.TarInfo("16.json")
        found.size = len(text(16))
        archive.addfile(found, io.BytesIO(text(16)))
    for body, what in ((packed.getvalue(), "a tar archive,"), (gzip.compress(packed.getvalue()), "inside of gzip")):
        key = lab.put_body(lab.topic, 16, "json", body)
        with pytest.raises(IntegrityError, match=f"object {key.replace('+', '.')} is .*{what}"):
            restored(lab.load(LINES, JSON), (lab.topic,), "{topic}-refused")
    assert values(lab.kafka, f"{lab.topic}-refused") == []


def test_nothing_is_created_where_no_record_can_be_written_and_a_dry_run_says_so(lab: SourceLab) -> None:
    lab.put_body(lab.topic, 0, "json", text(0))
    # The file would not lab.load so: the restore asks for another converter.
    avro = ConverterSettings(format="AVRO", registry=RegistrySettings(url="http://127.0.0.1:9"))
    config = lab.load(LINES, JSON)
    for behavior in ("fail", "ignore"):
        asked_for: dict[str, Any] = {"outgoing": Outgoing(value=avro), "behavior_on_error": behavior}
        with pytest.raises(PreflightError, match=r"none of the first 4 records .* can be written: .*has no schema"):
            restored(config, (lab.topic,), "{topic}-copy", **asked_for)
        for exact in (False, True):
            planned = restored(config, (lab.topic,), "{topic}-copy", dry_run=True, exact=exact, **asked_for)
            assert "can be written: " in planned.refusals[0]
    with ClusterAdmin(lab.kafka) as admin:
        assert f"{lab.topic}-copy" not in admin.list_topics()


def test_an_exact_dry_run_writes_every_record_and_names_the_one_that_cannot_be(lab: SourceLab) -> None:
    lab.put_body(lab.topic, 0, "json", b'{"n":1}\n')
    lab.put_body(lab.topic, 1, "json", b'{"n":[]}\n')
    cast = {"spec": SecretStr("n:int32")}
    outgoing = Outgoing(transforms=(TransformSettings(alias="cast", type="Cast$Value", options=cast),))
    config = lab.load(LINES, JSON)
    planned = restored(config, (lab.topic,), "{topic}-copy", dry_run=True, outgoing=outgoing)
    assert planned.refusals == ()
    counted = restored(config, (lab.topic,), "{topic}-copy", dry_run=True, exact=True, outgoing=outgoing)
    assert "the record of source offset 1 fails in " in counted.refusals[0]
    left = restored(
        config, (lab.topic,), "{topic}-copy", dry_run=True, exact=True, outgoing=outgoing, behavior_on_error="ignore"
    )
    assert (left.record_count, left.refusals) == (2, ())
    assert any("1 records cannot be written and are left out. First, the record of source" in n for n in left.notes)


@pytest.fixture(scope="module")
def ids(registry: RegistrySettings) -> dict[int, int]:
    """The id of each schema in the registry, once it is registered there, its references first."""
    found = {}
    with SchemaRegistryClient({"url": registry.url}) as client:
        for schema in sorted(BY_ID.values(), key=lambda schema: (len(schema.references), schema.version)):
            named = [SchemaReference(r.name, r.subject, r.version) for r in schema.references]
            found[schema.schema_id] = client.register_schema(schema.subject, Schema(schema.text, "AVRO", named))
    return found


def framed_event(event: Event, ids: dict[int, int]) -> bytes:
    assert event.schema is not None
    assert event.raw is not None
    return b"\0" + ids[event.schema.schema_id].to_bytes(4, "big") + event.raw[5:]


@pytest.mark.parametrize("format_name", ["avro", "parquet"])
def test_each_event_comes_back_in_its_place_with_its_bytes_and_its_type(
    lab: Lab, registry: RegistrySettings, ids: dict[int, int], format_name: str
) -> None:
    layout = {"format": format_name, "codec": "snappy", "partitioner": "Default"}
    config = lab.archive([Sent(framed_event(event, ids)) for event in TOPIC], layout=layout, records=avro(registry))
    restored(source_of(config), (), f"{lab.topic}-copy")
    back = values(lab.kafka, f"{lab.topic}-copy")
    assert [value[5:] for value in back] == [(event.raw or b"")[5:] for event in TOPIC]
    with SchemaRegistryClient({"url": registry.url}) as client:
        texts = [client.get_schema(int.from_bytes(value[1:5], "big")).schema_str or "" for value in back]
    assert len(set(texts)) == len({event.schema for event in TOPIC})
