"""The page that people read after a restore."""

import re
from contextlib import suppress
from dataclasses import fields, replace
from html.parser import HTMLParser
from typing import Any

import pytest

from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.model.gaps import MissingRecords
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.restore.report_page import render_page
from kafka_s3_platform.core.restore.request import LeftOut, RestoreReport, TargetReport, check_something_restored
from kafka_s3_platform_tests.restore.plans import part, report

VOID = {"meta", "rect", "br", "col"}


class _Checked(HTMLParser):
    """Every tag is closed in order, and nothing is fetched or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"script", "link", "img", "iframe"}
        assert not [name for name, _ in attrs if name in {"src", "href"} or name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def text(of: RestoreReport) -> str:
    checked = _Checked()
    checked.feed(render_page(of))
    checked.close()
    assert checked.open == []
    return checked.text


def test_the_page_tells_what_was_restored_and_how_it_was_proven() -> None:
    found = text(report())

    for words in (
        "Restore incident-7",
        "verified: every record sent was found once",
        "200,503",
        "1 min 10 s",
        "2,885",
        "0123456789abcdef0123456789abcdef",
        "_restore/incident-7.json",
        "_restore/r1/1.mapping.parquet",
        "2013-01-31T15:00:00+00:00",
        "1,000 to 120,999",
    ):
        assert words in found


def test_of_no_record_it_does_not_say_that_every_one_was_found() -> None:
    found = text(report(kafka_partitions=(), record_count=0, record_bytes=0, object_count=0, sent_count=0))

    assert "no record was to be restored, so none was compared" in found
    assert "found once" not in found


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        (LeftOut(failed=25), "25 records failed and left out"),
        (LeftOut(without_key=3), "3 records without a key left out"),
        (LeftOut(elsewhere=1_204), "1,204 records routed to other topics and left out"),
    ],
)
def test_records_that_were_left_out_take_the_verdict_with_their_number(left_out: LeftOut, said: str) -> None:
    found = text(report(kafka_partitions=(part(0, 120_000, left_out=left_out),)))
    assert f"verified, but not everything could be restored: {said}" in found
    assert "found once" not in found

    empty = part(0, 0, first_source_offset=None, last_source_offset=None, left_out=left_out)
    nothing = report(kafka_partitions=(empty,), record_count=0)
    assert f"nothing was restored: {said}" in text(nothing)
    with pytest.raises(IntegrityError, match=f"nothing was restored: {said}.*under another restore id"):
        check_something_restored(nothing)


def test_a_doubt_about_the_reading_takes_the_verdict() -> None:
    found = text(report(doubts=("values have the fields of an envelope",), notes=("values have the fields of an env",)))
    assert "every record sent was found once, but values have the fields of an envelope" in found
    assert "verified: every record" not in found


def test_what_transforms_were_to_drop_is_told_beside_the_verdict_and_is_not_missing() -> None:
    given = report(kafka_partitions=(part(0, 120_000, left_out=LeftOut(filtered=7)),))
    assert "every record sent was found once; 7 left out by transforms" in text(given)
    check_something_restored(replace(given, record_count=0))


def test_a_list_that_was_cut_tells_how_many_there_are() -> None:
    found = text(
        report(gaps=(MissingRecords("a gap"),) * 10, gap_count=1_299, skipped=("bad",) * 10, skipped_count=2_000)
    )
    assert "restored: 1,299 gaps in the archive; 2,000 objects or records skipped" in found


def test_nothing_on_it_comes_from_elsewhere() -> None:
    assert not re.search(r"https?:|url\(|@import", render_page(report()))


def test_gaps_are_drawn_and_told_and_the_verdict_says_so() -> None:
    gap = MissingRecords.of("flights", 1, OffsetRange(80_500, 90_000), "were lost to retention")
    elsewhere = MissingRecords.of("other", 1, OffsetRange(1, 2), "are in no object")

    found = render_page(report(gaps=(gap, elsewhere), gap_count=2))

    assert "flights-1: offsets [80500, 90000) were lost to retention" in found
    assert "[1, 2) is not in the archive" not in found, "it is of another topic"
    assert "[80,500, 90,000) is not in the archive" in found
    assert "verified, but not everything could be restored" in found
    assert "was found once" not in found


def test_records_that_are_there_once_more_are_told_with_the_place_of_each() -> None:
    shared = TargetReport("flights-again", 0, 0, 2_501, doubled_count=1_204, foreign_count=77, stream_count=2)

    found = text(report(targets=(shared,)))

    for words in (
        "all records were found, plus 1,204 extra copies",
        "flights-again-0",
        "0 to 2,500",
        "1,204",
        "77",
    ):
        assert words in found
    assert "was found once" not in found


def test_records_beside_a_stream_are_told_where_keys_deal_it_out() -> None:
    [part, *_] = report().kafka_partitions
    targets = (TargetReport("flights-again", 0, 0, 9), TargetReport("flights-again", 1, 0, 2_501, foreign_count=77))

    found = text(report(kafka_partitions=(part,), targets=targets))

    assert "flights-again-1" in found
    assert "77" in found


def test_of_objects_of_others_it_is_said_that_all_that_was_read_is_there() -> None:
    assert "verified: every record read was found once" in text(report(of_others=True))


def test_windows_are_drawn_on_one_line() -> None:
    hours = [["2013-01-31T15:00:00+00:00", "2013-01-31T16:00:00+00:00"]]
    apart = [*hours, ["2013-02-02T00:00:00+00:00", "2013-02-02T06:00:00+00:00"]]

    assert "2 windows of time, from 2013-01-31T15:00:00+00:00 to 2013-02-02T06" in text(
        report(terms={"windows": apart})
    )
    assert "windows of time" not in text(report(terms={"windows": hours}))
    assert "windows of time" not in text(report(terms={"windows": None}))


def test_a_dry_run_says_that_nothing_was_sent() -> None:
    dropping = text(report(dry_run=True, verified=False, kafka_partitions=(), exact=False, before_transforms=True))
    assert "records at most, before transforms" in dropping
    found = text(report(dry_run=True, verified=False, kafka_partitions=(), exact=False, finished_at=""))

    assert "dry run, nothing was sent" in found
    assert "records at most" in found
    assert "records/s" not in found


def test_refusals_stand_before_all_else() -> None:
    found = text(report(dry_run=True, verified=False, refusals=("the target is compacted",)))

    assert "would be refused" in found
    assert found.index("the target is compacted") < found.index("Kafka partitions")


def test_skipped_objects_and_schema_ids_have_their_places() -> None:
    found = text(report(skipped=("object a/b is damaged",), schema_ids=((4, 17),)))

    assert "object a/b is damaged" in found
    assert "Id in the target registry\n417" in found


@pytest.mark.parametrize("name", ["<b>", "a&b", '"><script>alert(1)</script>'])
def test_what_others_named_is_text_only(name: str) -> None:
    found = text(report(to_topic=name, notes=(name,), terms={"key_regex": name}))

    assert found.count(name) == 3


HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{0.__class__}}"


def fields_of(given: Any) -> list[str]:
    return [f.name for f in fields(given)]


@pytest.mark.parametrize("name", fields_of(report()))
def test_no_field_of_a_report_can_become_html(name: str) -> None:
    """Whatever its type is said to be: a stored report is read back without a look at that."""
    hostile: dict[str, Any] = {
        "terms": {HOSTILE: HOSTILE, "to_offset": None},
        "schema_ids": ((HOSTILE, HOSTILE),),
        **dict.fromkeys(("notes", "refusals", "skipped"), (HOSTILE,)),
        "gaps": (MissingRecords(HOSTILE, HOSTILE, 0, OffsetRange(0, 5)),),
        "kafka_partitions": (part(0, 5, digest=HOSTILE, mapping_key=HOSTILE, topic=HOSTILE),),
        "targets": (TargetReport(HOSTILE, 0, 0, 5, stream_count=2),),
        "parts": (report(topic=HOSTILE, to_topic=HOSTILE, failure=HOSTILE, skipped=(HOSTILE,)),),
    }
    for dry_run in (False, True):
        given = report(**{"dry_run": dry_run, name: hostile.get(name, HOSTILE)})
        with suppress(ValueError, TypeError):  # a text where a number is formatted ends the page, which is safe too
            text(given)


@pytest.mark.parametrize("name", fields_of(part(0, 5)))
def test_no_field_of_a_kafka_partition_can_become_html(name: str) -> None:
    with suppress(ValueError, TypeError, AttributeError):
        text(report(kafka_partitions=(replace(part(0, 5), **{name: HOSTILE}),)))  # type: ignore[arg-type]


def test_hostile_schema_ids_are_shown_as_text() -> None:
    assert text(report(schema_ids=((HOSTILE, 4),))).count(HOSTILE) == 1


def test_a_restore_of_nothing_has_a_page() -> None:
    nothing = part(0, 0, first_source_offset=None, last_source_offset=None, first_target_offset=None, mapping_key=None)

    assert "none" in text(report(kafka_partitions=(nothing,), record_count=0, record_bytes=0, sent_count=0))


def test_the_page_of_a_report_that_was_stored_is_the_same() -> None:
    gaps = (MissingRecords("some"), MissingRecords.of("flights", 0, OffsetRange(0, 5), "are not archived"))
    given = report(schema_ids=((4, 17),), skipped=("x",), gaps=gaps)

    assert render_page(RestoreReport.from_json(given.to_json(), "r")) == render_page(given)
