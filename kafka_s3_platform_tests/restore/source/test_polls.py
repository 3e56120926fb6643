"""Restores that come after one another: each sends what appeared since, and says what it leaves out."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr

from kafka_s3_platform.connect.restore.polls import Polls, read_sent, save_sent
from kafka_s3_platform.connect.restore.source.foreign_plan import SentObjects
from kafka_s3_platform.connect.sources.objects import MAX_LINES
from kafka_s3_platform.connect.sources.scan import SourceListing
from kafka_s3_platform.core.config.settings import PredicateSettings, StoreSettings, TransformSettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError, PreflightError
from kafka_s3_platform.core.restore.request import (
    Outgoing,
    RecordFilter,
    check_something_restored,
    judge_report,
    list_missing,
)
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.restore.foreign import JSON, LINES, SourceLab, asked, numbered, numbers, restored
from kafka_s3_platform_tests.restore.own import delete_topic
from kafka_s3_platform_tests.sources.memory import MemoryStore, source

KEYS = """\
key.converter=org.apache.kafka.connect.storage.StringConverter
store.kafka.keys=true
keys.format.class=io.confluent.connect.s3.format.json.JsonFormat
"""


def known_keys(store: StoreSettings, restore_id: str) -> list[str]:
    found = pq.read_table(pa.BufferReader(ObjectStore(store).get(f"_restore/{restore_id}.known.parquet")))
    keys: list[str] = found.column("key").to_pylist()
    return keys


def test_each_restore_sends_what_appeared_since_however_many_there_were(lab: SourceLab) -> None:
    config, copy = lab.load(LINES, JSON), f"{lab.topic}-copy"
    keys = [lab.put(lab.topic, 0, numbered(0, 3)), lab.put(lab.topic, 3, numbered(3, 3))]
    first = restored(config, (), "{topic}-copy", restore_id="one")
    keys.append(lab.put(lab.topic, 6, numbered(6, 2)))
    keys.append(lab.put(lab.topic, 0, numbered(50, 2), 1))
    second = restored(config, (), {lab.topic: copy}, restore_id="two", after="one", kafka_partitions=(0,))
    third = restored(config, (), "{topic}-more", restore_id="three", after="two")
    nothing = restored(config, (), "{topic}-copy", restore_id="four", after="three")
    keys.append(lab.put(lab.topic, 8, numbered(8, 1)))
    last = restored(config, (), "{topic}-copy", restore_id="five", after="four")

    assert [(r.object_count, r.sent_count) for r in (first, second, third, nothing, last)] == [
        (2, 6),
        (1, 2),
        (1, 2),
        (0, 0),
        (1, 1),
    ]
    assert numbers(lab.kafka, copy) == list(range(9))
    assert numbers(lab.kafka, f"{lab.topic}-more", 1) == [50, 51]
    assert nothing.verified
    assert any("there are no objects to restore" in note for note in nothing.notes)
    assert sorted(keys[:-1]) == known_keys(lab.store, "five")
    for more, told in (
        ({}, "no object of topic gone was found: gone was looked for below s3://"),
        ({"after": "five"}, "no object of topic gone was found"),
    ):
        with pytest.raises(PreflightError, match=told):
            restored(config, ("gone",), restore_id="six", **more)
    with pytest.raises(PreflightError, match=r"no object of kafka partition 7 was found: .* There are objects of 0, 1"):
        restored(config, (), restore_id="six", kafka_partitions=(0, 7), after="five", dry_run=True)
    by_pattern = config.model_copy(update={"topics_regex": "gone-.*"})
    with pytest.raises(PreflightError, match=r"there is no object to restore: topics.regex gone-\.\* was looked for"):
        restored(by_pattern, restore_id="six", dry_run=True)
    again = restored(config, (), "{topic}-copy", restore_id="four", after="three")
    assert (again.already_finished, again.object_count) == (True, 0)


ROOT = """\
name=root
connector.class=io.aiven.kafka.connect.s3.source.S3SourceConnector
aws.s3.bucket.name=confluent-kafka-connect-s3-testing
file.compression.type=none
input.format=jsonl
"""


@pytest.mark.parametrize("template", ["", "file.name.template={{any}}/{{any}}.json\n"])
def test_from_a_buckets_root_only_what_appeared_is_sent_and_no_document_of_ours(lab: SourceLab, template: str) -> None:
    config, sent = lab.load(ROOT, f"{JSON}{template}topics={lab.topic}\n"), []
    for n, (restore_id, after) in enumerate((("one", None), ("two", None), ("three", "one"))):
        name = f"dump/{n}.json" if template else f"{lab.topic}-0-{n}"
        lab.put_object(name, b'{"n":%d}\n' % n)
        terms = {"restore_id": restore_id, "after": after}
        sent.append(restored(config, (), f"{{topic}}-{after or restore_id}", **terms).sent_count)
    assert sent == [1, 2, 2]
    assert numbers(lab.kafka, f"{lab.topic}-one") == [0, 1, 2]


def test_what_lies_before_what_was_sent_comes_after_it_and_nothing_twice(
    lab: SourceLab,
) -> None:
    config = lab.load(LINES, JSON + "behavior.on.error=ignore\n")
    lab.put(lab.topic, 10, numbered(10, 3))
    restored(config, (), "{topic}-copy", restore_id="one")
    replaced = lab.put(lab.topic, 10, numbered(90, 3))
    early = lab.put(lab.topic, 0, numbered(0, 3))
    late = lab.put(lab.topic, 20, numbered(20, 1))
    report = restored(config, (), "{topic}-copy", restore_id="two", after="one")
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [10, 11, 12, 0, 1, 2, 20]
    assert [n for n in report.notes if early in n] == [
        f"object {early} lies before what was sent of its kafka partition: its records come after that"
    ]
    [skipped] = report.skipped
    assert f"object {replaced} was replaced after it was sent: it is not sent again, and records that" in skipped
    assert list_missing(report) == ("1 gap in the archive", "1 object or record skipped")
    assert not any(late in n for n in report.notes)
    told = restored(config, (), "{topic}-copy", restore_id="three", after="two")
    assert (told.sent_count, [replaced in line for line in told.skipped]) == (0, [True])
    assert list_missing(told)
    check_something_restored(told)


def test_of_two_objects_that_begin_alike_the_one_that_was_not_sent_is_left_out(lab: SourceLab) -> None:
    config = lab.load(LINES, JSON + "behavior.on.error=ignore\n")
    sent = lab.put(lab.topic, 0, numbered(0, 3))
    restored(config, (), "{topic}-copy", restore_id="one")
    same = sent.replace("+0000000000", "+0")
    assert same < sent
    lab.put_object(same, b'{"n":0}\n')
    report = restored(config, (), "{topic}-copy", restore_id="two", after="one")
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [0, 1, 2]
    assert (report.object_count, len(report.skipped)) == (0, 1)
    assert f"object {same}: it begins where {sent} does" in report.skipped[0]


def test_values_whose_keys_are_not_there_yet_wait_for_them_and_no_key_becomes_null(lab: SourceLab) -> None:
    config = lab.load(LINES, JSON + KEYS)
    value = lab.put(lab.topic, 0, numbered(0, 2))
    with pytest.raises(IntegrityError, match=r"0000000000\.json: its keys are not there beside it"):
        restored(config, (), "{topic}-copy", restore_id="one")
    keys = value.replace(".json", ".keys.json")
    lab.put_object(keys, b'"a"\n"b"\n')
    # A lost object of values makes no tombstones of its keys.
    lab.put_object(keys.replace("+0000000000", "+0000000002"), b'"a"\n')
    report = restored(config, (), "{topic}-copy", restore_id="one", behavior_on_error="ignore")
    found = records_of(lab.kafka, f"{lab.topic}-copy", 0)
    assert found.column("key").to_pylist() == [b"a", b"b"]
    assert found.column("value").to_pylist() == [b'{"n":0}', b'{"n":1}']
    assert (report.record_count, report.verified) == (2, True)
    assert "its values are not there beside it" in report.skipped[0]


def test_a_run_killed_before_its_plan_sends_what_appeared_meanwhile_once(lab: SourceLab) -> None:
    config, store = lab.load(LINES, JSON), ObjectStore(lab.store)
    lab.put(lab.topic, 0, numbered(0, 3))
    restored(config, (), "{topic}-copy", restore_id="one")
    lab.put(lab.topic, 3, numbered(3, 3))
    killed = asked(config, restore_id="two").request
    save_sent(killed, read_sent(killed, "one", store), store)
    lab.put(lab.topic, 6, numbered(6, 3))
    assert restored(config, (), "{topic}-copy", restore_id="two", after="one").sent_count == 6
    assert restored(config, (), "{topic}-copy", restore_id="three", after="two").sent_count == 0
    assert numbers(lab.kafka, f"{lab.topic}-copy") == list(range(9))

    left = asked(config, restore_id="four").request
    save_sent(left, read_sent(killed, "one", store), store)
    with pytest.raises(
        PreflightError, match=r"four\.known\.parquet lists other objects as sent before .* Use another restore id"
    ):
        restored(config, (), "{topic}-copy", restore_id="four", after="three")
    assert restored(config, (), "{topic}-copy", restore_id="five", after="three").verified


def test_only_a_finished_restore_of_whole_objects_has_one_after_it(
    lab: SourceLab,
) -> None:
    config = lab.load(LINES, JSON)
    bad = lab.put(lab.topic, 0, numbered(0, 3))
    lab.put_object(bad, b'{"n":0}\n{"n')
    with pytest.raises(IntegrityError):
        restored(config, (), "{topic}-copy", restore_id="failed")
    with pytest.raises(PreflightError, match=r"restore failed is not finished: .*failed\.report\.json\. Run it again"):
        restored(config, (), "{topic}-copy", after="failed")
    with pytest.raises(PreflightError, match="restore never was never begun"):
        restored(config, (), "{topic}-copy", after="never")
    with pytest.raises(ConfigError, match="cannot come after itself"):
        restored(config, (), "{topic}-copy", restore_id="same", after="same")

    lab.put(lab.topic, 0, numbered(0, 3))
    with pytest.raises(IntegrityError, match=r"was replaced or damaged.*--behavior-on-error ignore.*to another topic"):
        restored(config, (), "{topic}-copy", restore_id="failed")
    assert restored(config, (), "{topic}-corrected", restore_id="corrected").record_count == 3
    assert restored(config, (), "{topic}-copy", restore_id="failed", behavior_on_error="ignore").record_count == 0
    assert restored(config, (), "{topic}-copy", after="failed", dry_run=True).object_count == 1
    restored(config, (), "{topic}-copy", restore_id="window", to_offset=2)
    with pytest.raises(PreflightError, match=r"restore window sent a window \(to_offset\)"):
        restored(config, (), "{topic}-copy", after="window")
    restored(config, (), "{topic}-copy", restore_id="whole")
    with pytest.raises(PreflightError, match="belongs to connector lines, not to other"):
        restored(config.model_copy(update={"name": "other"}), (), "{topic}-copy", after="whole")
    restored(config, (), "{topic}-copy", restore_id="next", after="whole")
    with pytest.raises(PreflightError, match="after was whole, is now None"):
        restored(config, (), "{topic}-copy", restore_id="next")


def test_one_restore_comes_after_another_and_a_second_one_is_told_which(lab: SourceLab) -> None:
    config, first = lab.load(LINES, JSON), Polls(lab.load(LINES, JSON)).restore_id(1)
    lab.put(lab.topic, 0, numbered(0, 3))
    restored(config, (), "{topic}-copy", restore_id=first)
    bad = lab.put(lab.topic, 3, numbered(3, 3))
    good = ObjectStore(lab.store).get(bad)
    lab.put_object(bad, b'{"n":0}\n{"n')
    assert restored(config, (), "{topic}-copy", restore_id="looked", after=first, dry_run=True).object_count == 1
    with pytest.raises(IntegrityError):
        restored(config, (), "{topic}-copy", restore_id="by-hand", after=first)
    told = r"restore by-hand already comes after restore poll\.lines\.1 .*_restore/poll\.lines\.1\.next.* after that"
    for dry_run in (True, False):
        with pytest.raises(PreflightError, match=told):
            restored(config, (), "{topic}-copy", restore_id="poll.lines.2", after=first, dry_run=dry_run)
    with pytest.raises(PreflightError, match=told):
        Polls(config).new_objects(1)
    lab.put_object(bad, good)
    ignoring = {"restore_id": "by-hand", "after": first, "behavior_on_error": "ignore"}
    assert restored(config, (), "{topic}-copy", **ignoring).sent_count == 0
    assert restored(config, (), "{topic}-copy", restore_id="poll.lines.2", after="by-hand").sent_count == 3
    assert numbers(lab.kafka, f"{lab.topic}-copy") == list(range(6))


FILTER = TransformSettings(
    alias="drop", type="Filter", predicate=PredicateSettings(alias="null", type="RecordIsTombstone")
)
ROUTE = TransformSettings(
    alias="to", type="RegexRouter", options={"regex": SecretStr("(.*)"), "replacement": SecretStr("$1-routed")}
)


@pytest.mark.parametrize(
    "terms", [{"records": RecordFilter(sql="value <> '{\"n\":1}'")}, {"outgoing": Outgoing(transforms=(FILTER,))}]
)
def test_what_a_filter_left_out_is_never_taken_for_sent(lab: SourceLab, terms: dict[str, Any]) -> None:
    config = lab.load(LINES, JSON)
    lab.put(lab.topic, 0, numbered(0, 3))
    restored(config, (), "{topic}-copy", restore_id="one", **terms)
    lab.put(lab.topic, 3, numbered(3, 3))
    for dry_run in (True, False):
        with pytest.raises(
            PreflightError, match=r"restore one sent only some records .* it selected by .* Make the same selection"
        ):
            restored(config, (), "{topic}-copy", restore_id="two", after="one", dry_run=dry_run)
    assert restored(config, (), "{topic}-copy", restore_id="two", after="one", **terms).sent_count == 3


def test_after_a_restore_that_sent_all_records_one_may_choose_or_route_them(lab: SourceLab) -> None:
    config = lab.load(LINES, JSON)
    lab.put(lab.topic, 0, numbered(0, 3))
    restored(config, (), None, restore_id="one", outgoing=Outgoing(transforms=(ROUTE,)))
    lab.put(lab.topic, 3, numbered(3, 3))
    terms = {"records": RecordFilter(sql="value <> '{\"n\":4}'")}
    assert restored(config, (), "{topic}-copy", restore_id="two", after="one", **terms).sent_count == 2


def test_no_restore_takes_a_document_of_another_for_its_own(lab: SourceLab) -> None:
    config, store = lab.load(LINES, JSON), ObjectStore(lab.store)
    lab.put(lab.topic, 0, numbered(0, 3))
    for dry_run in (True, False):
        with pytest.raises(
            ConfigError, match=r"one\.report cannot be used: its plan would be stored at _restore/one\.report\.json"
        ):
            restored(config, (), "{topic}-copy", restore_id="one.report", dry_run=dry_run)
    restored(config, (), "{topic}-copy", restore_id="one")
    # A plan where the report of another id is to be.
    lab.put_object("_restore/two.report.json", store.get("_restore/one.json"))
    # A report whose plan was deleted says that all was sent.
    lab.s3.delete_object(Bucket=lab.store.bucket, Key="_restore/one.json")
    for restore_id in ("one", "two"):
        told = rf"restore id {restore_id} has no plan, but .* _restore/{restore_id}\.report\.json: the report"
        with pytest.raises(PreflightError, match=told):
            restored(config, (), "{topic}-copy", restore_id=restore_id)


def test_what_was_sent_before_is_never_guessed_from_a_damaged_or_missing_document(lab: SourceLab) -> None:
    config, key = lab.load(LINES, JSON), "_restore/two.known.parquet"
    lab.put(lab.topic, 0, numbered(0, 3))
    restored(config, (), "{topic}-copy", restore_id="one")
    restored(config, (), "{topic}-copy", restore_id="two", after="one")
    body = ObjectStore(lab.store).get(key)
    column = pq.ParquetFile(pa.BufferReader(body)).metadata.row_group(0).column(0)
    last = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1
    for damaged in (body[:last] + bytes([body[last] ^ 1]) + body[last + 1 :], body[:-20]):
        lab.put_object(key, damaged)
        with pytest.raises(IntegrityError, match=r"two\.known\.parquet"):
            restored(config, (), "{topic}-copy", after="two")
    lab.s3.delete_object(Bucket=lab.store.bucket, Key=key)
    with pytest.raises(IntegrityError, match="sent before restore two is missing"):
        restored(config, (), "{topic}-copy", after="two")


def test_the_newest_poll_is_found_from_any_earlier_one_and_without_one(lab: SourceLab) -> None:
    config = lab.load(LINES, JSON)
    polls = Polls(config)
    assert (polls.newest(), polls.new_objects(0).objects) == (0, ())
    lab.put(lab.topic, 0, numbered(0, 3))
    assert len(polls.new_objects(0).objects) == 1
    for number in range(1, 12):
        after = {"after": polls.restore_id(number - 1)} if number > 1 else {}
        restored(config, (), "{topic}-copy", restore_id=polls.restore_id(number), **after)
    restored(config, (), "{topic}-copy", restore_id="poll.lines.x")
    restored(config.model_copy(update={"name": "lines.1"}), (), "{topic}-other", restore_id="poll.lines.1.99")
    assert [polls.newest(seen) for seen in (0, 1, 10, 11)] == [11] * 4
    assert polls.is_finished(11)
    assert not polls.is_finished(12)
    assert polls.new_objects(11).objects == ()


def test_of_very_many_objects_a_thousand_are_told_and_the_others_counted() -> None:
    keys = [f"topics/t/partition=0/t+0+{n:010d}.json" for n in range(MAX_LINES + 3)]
    found = list(SourceListing(source({"format": "json"}), store=MemoryStore(dict.fromkeys(keys, b"x"))))
    unsent = SentObjects.of(found[-1:]).find_unsent(found)
    assert (len(unsent.objects), len(unsent.notes)) == (MAX_LINES + 2, MAX_LINES + 1)
    assert unsent.notes[-1].startswith("2 more objects: each lies before")


def test_a_target_that_lacks_what_was_sent_before_takes_the_verdict(lab: SourceLab) -> None:
    config = lab.load(LINES, JSON)
    lab.put(lab.topic, 0, numbered(0, 3))
    restored(config, (), "{topic}-copy", restore_id="one")
    lab.put(lab.topic, 3, numbered(3, 2))
    same = restored(config, (), "{topic}-copy", restore_id="two", after="one")
    assert (same.doubts, judge_report(same).kind) == ((), "good")

    lab.put(lab.topic, 5, numbered(5, 1))
    other = restored(config, (), "{topic}-other", restore_id="three", after="two")
    [doubt] = other.doubts
    assert f"{lab.topic}-other lacks the records of {lab.topic} that earlier restores have sent: 2 objects" in doubt
    assert judge_report(other).kind == "part"

    delete_topic(lab.kafka, f"{lab.topic}-copy")
    lab.put(lab.topic, 6, numbered(6, 1))
    again = restored(config, (), "{topic}-copy", restore_id="four", after="three")
    assert [
        f"went to {lab.topic}-{name} of id" in line for name, line in zip(("copy", "other"), again.doubts, strict=True)
    ] == [
        True,
        True,
    ]


def test_topics_that_records_name_are_compared_with_those_of_the_same_name(lab: SourceLab) -> None:
    extracted = "transforms=x\ntransforms.x.type=ExtractTopic$Value\ntransforms.x.field=t\n"
    config = lab.load(LINES, JSON + extracted)
    first, second = f"{lab.topic}-a", f"{lab.topic}-b"
    lab.put(lab.topic, 0, [{"n": 0, "t": first}])
    restored(config, restore_id="one")
    lab.put(lab.topic, 1, [{"n": 1, "t": second}, {"n": 2, "t": first}])
    report = restored(config, restore_id="two", after="one")
    assert (report.record_count, report.doubts) == (2, ())
    assert [numbers(lab.kafka, name) for name in (first, second)] == [[0, 2], [1]]

    delete_topic(lab.kafka, first)
    lab.put(lab.topic, 3, [{"n": 3, "t": first}])
    [doubt] = restored(config, restore_id="three", after="two").doubts
    assert (
        f"{first} lacks the records of {lab.topic} that earlier restores have sent: 2 objects went to {first}" in doubt
    )
