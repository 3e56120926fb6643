"""What makes two requests the same restore: a resume that asks for something else is refused, by name.

Plans as they are stored: each says its format, and is written again as the same bytes with the same digest.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from kafka_s3_platform.connect.config.keys.transforms import parse_transforms
from kafka_s3_platform.connect.restore.source.foreign_plan import ForeignPlan, make_foreign_targets
from kafka_s3_platform.core.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError, PreflightError
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.restore.request import Outgoing, RecordFilter
from kafka_s3_platform.core.restore.source.archive_plan import ArchivePlan, check_same, describe_gaps
from kafka_s3_platform.core.restore.source.base import TargetStart, estimate_seconds
from kafka_s3_platform.core.restore.source.selection import round_up_to_ms, select_records
from kafka_s3_platform.core.restore.source.terms import collect_request_terms
from kafka_s3_platform.core.restore.source.topics_plan import TopicsPlan
from kafka_s3_platform_tests.model.test_state import scan
from kafka_s3_platform_tests.restore.plans import CONFIG, going, hours, plan, planned, request
from kafka_s3_platform_tests.restore.records import batch_of
from kafka_s3_platform_tests.support import NOON

HOUR = 3_600_000

START = round_up_to_ms(NOON)

STEPS = parse_transforms({"transforms": "a", "transforms.a.type": "DropHeaders", "transforms.a.headers": "x"})

REGISTRY = RegistrySettings(url="http://r", properties={"basic.auth.user.info": SecretStr("me:hidden")})

MAPPER = "kafka_s3_platform_tests.transforms.example_mappers.LevelFilter"

SECRET_STEPS = {
    "transforms": "m,h,f",
    "transforms.m.type": MAPPER,
    "transforms.m.level": "DEBUG",
    "transforms.m.vault": "hunter2",
    "transforms.h.type": "InsertHeader",
    "transforms.h.header": "authorization",
    "transforms.h.value.literal": "hunter2",
    "transforms.f.type": "InsertField$Value",
    "transforms.f.static.field": "site",
    "transforms.f.static.value": "hunter2",
    "transforms.f.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "HasHeaderKey",
    "predicates.p.name": "x",
}

STORED = Path(__file__).parent / "stored"

KINDS: Mapping[str, type[TopicsPlan] | type[ForeignPlan]] = {"topics_plan": TopicsPlan, "foreign_plan": ForeignPlan}


def test_without_a_window_every_record_is_held_whatever_its_timestamp() -> None:
    chosen = select_records(request(), [0, 1])

    assert chosen.holds(planned(1, (0, 2**40), (-(2**60), 2**60)))
    assert not chosen.is_timed


def test_a_window_of_time_ends_before_its_end_to_the_millisecond() -> None:
    chosen = select_records(request(from_time=NOON, to_time=NOON + timedelta(milliseconds=10)), [0])
    start = round_up_to_ms(NOON)

    assert chosen.holds(planned(0, (0, 5), (start, start + 9)))
    assert chosen.overlaps(planned(0, (0, 5), (start + 9, start + 10)))
    assert not chosen.holds(planned(0, (0, 5), (start + 9, start + 10)))
    assert not chosen.overlaps(planned(0, (0, 5), (start + 10, start + 20)))
    assert not chosen.overlaps(planned(0, (0, 5), (start - 9, start - 1)))


def test_a_bound_between_two_milliseconds_is_the_later_one() -> None:
    assert round_up_to_ms(NOON + timedelta(microseconds=1)) == round_up_to_ms(NOON) + 1
    assert round_up_to_ms(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=timezone.utc)) == 0


def test_offsets_are_one_window_for_all_or_one_a_kafka_partition() -> None:
    one = select_records(request(from_offset=3, to_offset=9), [0, 1])
    each = select_records(request(from_offset={1: 3}, to_offset={1: 9}), [0, 1])

    assert one.bounds(planned(0, (0, 20), (0, 0))) == (3, 9)
    assert each.bounds(planned(0, (0, 20), (0, 0))) == (0, 20)
    assert each.bounds(planned(1, (0, 20), (0, 0))) == (3, 9)
    assert not one.overlaps(planned(0, (9, 20), (0, 0)))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"kafka_partitions": (0, 7)}, "kafka partition 7"),
        ({"from_offset": {4: 0}}, "kafka partition 4"),
        ({"from_offset": 9, "to_offset": 9}, r"the range \[9, 9\) contains no offset"),
        ({"from_time": NOON, "to_time": NOON}, "contains no time"),
        ({"from_time": NOON.replace(tzinfo=None)}, "has no timezone"),
        ({"restore_id": "a/b"}, "restore id 'a/b'"),
    ],
)
def test_what_cannot_be_selected_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        select_records(request(**changes), [0, 1])


def test_hours_picked_here_and_there_are_windows_of_their_own() -> None:
    chosen = select_records(request(windows=hours(5, 0, 1)), [0])

    assert chosen.times == ((START, START + 2 * HOUR), (START + 5 * HOUR, START + 6 * HOUR))
    assert (chosen.from_ms, chosen.to_ms) == (START, START + 6 * HOUR)
    assert chosen.holds(planned(0, (0, 5), (START + HOUR - 1, START + HOUR)))
    assert chosen.overlaps(planned(0, (0, 5), (START + 3 * HOUR, START + 5 * HOUR)))
    assert not chosen.holds(planned(0, (0, 5), (START + 3 * HOUR, START + 5 * HOUR)))
    assert not chosen.overlaps(planned(0, (0, 5), (START + 2 * HOUR, START + 5 * HOUR - 1)))


def test_hours_and_a_window_must_both_hold() -> None:
    chosen = select_records(request(windows=hours(0, 5), from_time=NOON + timedelta(hours=5, minutes=30)), [0])

    assert not chosen.overlaps(planned(0, (0, 5), (START, START + HOUR)))
    assert chosen.overlaps(planned(0, (0, 5), (START + 6 * HOUR - 1, START + 6 * HOUR - 1)))


@given(st.lists(st.integers(-3 * HOUR, 9 * HOUR)), st.sets(st.integers(0, 5)))
def test_records_of_the_picked_hours_and_no_others_are_taken(times: list[int], picked: set[int]) -> None:
    batch = batch_of([{"timestamp": START + t} for t in times])

    found = select_records(request(windows=hours(*picked)), [0]).within_times(batch)

    expected = [n for n, t in enumerate(times) if not picked or t // HOUR in picked]
    assert found.column("offset").to_pylist() == expected


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        ({"to_offset": 100}, "[60, 100)"),
        ({"from_offset": 80, "to_offset": 100}, "[80, 100)"),
        ({"to_offset": 60}, None),
        ({}, None),
        ({"from_offset": 30}, None),
    ],
)
def test_offsets_that_were_asked_for_and_lie_behind_the_archives_end_are_missing(
    asked: dict[str, Any], missing: str | None
) -> None:
    state = IndexState(scans=(scan(0, 0, 60),))
    gaps = list(describe_gaps(request(**asked), state, select_records(request(**asked), [0]), ()))
    expected = f"t-0: offsets {missing} are not archived, or were never there: the archive ends at offset 60"
    assert [gap.text for gap in gaps] == ([expected] if missing else [])


def test_of_a_window_without_an_end_hours_that_are_not_over_yet_lack_nothing() -> None:
    now = datetime.now(timezone.utc)

    def count(**asked: Any) -> int:
        window = request(from_time=now - timedelta(hours=5), **asked)
        [gap] = describe_gaps(window, IndexState(), select_records(window, [0]), ())
        return int(gap.text.removeprefix("t: ").split(" ")[0])

    assert 0 < count() < count(to_time=now + timedelta(hours=1))


def steps(**changes: str) -> Outgoing:
    """The transforms above, with some other options."""
    return Outgoing(transforms=parse_transforms({**SECRET_STEPS, **changes}))


def stored_plan(**changes: Any) -> ArchivePlan:
    """The plan of a request, as it comes back from the bucket."""
    asked = request(**changes)
    chosen = select_records(asked, plan().source.kafka_partitions)
    given = replace(plan(), terms=collect_request_terms(asked), selection=chosen)
    return ArchivePlan.from_json(given.to_json(), "k")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"records": RecordFilter(keys=(b"a",))}, "records"),
        ({"records": RecordFilter(keys=(b"\xff",))}, "records"),
        ({"records": RecordFilter(sql="true")}, "records"),
        ({"records": RecordFilter(latest_per_key=True)}, "records"),
        ({"outgoing": Outgoing(partitioning="murmur2")}, "outgoing"),
        ({"outgoing": Outgoing(provenance_headers=True)}, "outgoing"),
        ({"outgoing": Outgoing(transforms=STEPS)}, "outgoing"),
        ({"outgoing": Outgoing(value=ConverterSettings(format="AVRO", registry=REGISTRY))}, "outgoing"),
        ({"outgoing": Outgoing(map_schema_ids=True, target_registry=REGISTRY)}, "outgoing"),
        ({"windows": hours(1, 3)}, "windows"),
    ],
)
def test_a_resume_with_other_choices_is_refused_and_one_with_the_same_is_not(
    changes: dict[str, Any], named: str
) -> None:
    check_same(request(**changes), stored_plan(**changes))
    with pytest.raises(PreflightError, match=f"{named} was None, is now"):
        check_same(request(**changes), stored_plan())
    with pytest.raises(PreflightError, match=f"{named} was .*, is now None"):
        check_same(request(), stored_plan(**changes))
    assert "hidden" not in stored_plan(**changes).to_json().decode()


def test_a_plan_has_no_options_of_plug_ins_yet_a_resume_tells_other_ones() -> None:
    outgoing = steps()
    found = stored_plan(outgoing=outgoing)
    assert "hunter2" not in found.to_json().decode()
    assert "hunter2" not in repr(found)
    assert "hunter2" not in repr(request(outgoing=outgoing))
    for shown in ("DEBUG", "authorization", "site"):
        assert shown in found.to_json().decode()
    check_same(request(outgoing=outgoing), found)
    for changed in ("transforms.m.vault", "transforms.h.value.literal", "transforms.f.static.value"):
        with pytest.raises(PreflightError, match=r"outgoing was .*, is now") as raised:
            check_same(request(outgoing=steps(**{changed: "hunter3"})), found)
        assert "hunter" not in str(raised.value)
    with pytest.raises(PreflightError, match=r"outgoing was .*, is now None") as raised:
        check_same(request(), found)
    assert "hunter" not in str(raised.value)


def test_the_same_secret_is_another_digest_in_another_restore() -> None:
    one, other = (
        collect_request_terms(replace(request(outgoing=steps()), restore_id=name)) for name in ("one", "other")
    )
    assert one["outgoing"]["transforms"][0]["options"]["level"] == "DEBUG"
    digests = [found["outgoing"]["transforms"][0]["options"]["vault"] for found in (one, other)]
    assert len(set(digests)) == 2


def test_a_value_that_looks_like_a_digest_is_digested_as_any_other() -> None:
    looks = {"transforms.m.vault": f"scrypt:{'0' * 32}"}
    found = stored_plan(outgoing=steps(**looks))
    assert looks["transforms.m.vault"] not in found.to_json().decode()
    check_same(request(outgoing=steps(**looks)), found)


def test_a_plan_with_filters_or_transforms_knows_at_most_how_many_records_there_are() -> None:
    assert stored_plan().is_exact
    assert not stored_plan(records=RecordFilter(keys=(b"a",))).is_exact
    assert not stored_plan(outgoing=Outgoing(transforms=STEPS)).is_exact
    assert stored_plan(outgoing=Outgoing(provenance_headers=True)).is_exact


def test_a_snapshot_is_estimated_to_read_everything_twice() -> None:
    once, twice = (stored_plan(records=RecordFilter(latest_per_key=latest)) for latest in (False, True))
    assert estimate_seconds(request(), going(twice)) == 2 * estimate_seconds(request(), going(once))


@pytest.mark.parametrize("name", KINDS)
def test_a_stored_plan_is_written_again_as_it_was(name: str) -> None:
    """The digest is in the progress markers of restores under way."""
    content = (STORED / f"{name}.json").read_bytes().rstrip()
    assert KINDS[name].from_json(content, "k").to_json() == content


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("said", "found"), [(2, "format 2"), (0, "format 0"), (None, "no format")])
def test_a_plan_of_another_format_is_refused_and_says_what_to_do(name: str, said: int | None, found: str) -> None:
    document = json.loads((STORED / f"{name}.json").read_bytes())
    assert document.pop("format") == 1
    content = json.dumps(document if said is None else {**document, "format": said}).encode()
    advice = f"restore plan k has {found}, and this version reads format 1: use the version that wrote it, or restore"
    with pytest.raises(IntegrityError, match=rf"\] {advice} under another restore id$"):
        KINDS[name].from_json(content, "k")


def test_a_plan_whose_target_ended_nowhere_is_refused() -> None:
    start = {"topic_id": "id", "offsets": [[0, -1001]]}
    document = json.loads((STORED / "topics_plan.json").read_bytes()) | {"starts": {"u": start}}
    with pytest.raises(IntegrityError, match=r"no log ends at one of the offsets \(\(0, -1001\),\)"):
        TopicsPlan.from_json(json.dumps(document).encode(), "k")
    with pytest.raises(ValueError, match="no log ends"):
        TargetStart("id", ((0, -1),))


def test_what_a_stored_plan_was_asked_for_is_told_by_its_terms() -> None:
    for kind, name, after in ((TopicsPlan, "topics_plan", None), (ForeignPlan, "foreign_plan", "r0")):
        asked = kind.from_json((STORED / f"{name}.json").read_bytes(), "k").facts
        assert (asked.connector, asked.after) == ("c", after)
        assert (asked.chooses, asked.partitioning, asked.is_snapshot) == (True, "murmur2", True)
        assert asked.windows_named == ("windows",)
        assert [step.type for step in asked.transforms][1:] == ["InsertHeader", "InsertField$Value"]


def test_what_a_listing_does_not_tell_is_not_known() -> None:
    plan = ForeignPlan.from_json((STORED / "foreign_plan.json").read_bytes(), "k")
    for name, is_told, oldest in (("envelope.json", True, 0), ("json", False, 5)):
        layout = CONFIG.layout.model_copy(update={"format": name})
        asked = replace(request(), config=CONFIG.model_copy(update={"layout": layout}))
        [target] = make_foreign_targets(asked, plan)
        assert (target.topics, target.to_topic, target.kafka_partitions) == (("t",), "u", (0, 1))
        assert (target.record_count, target.record_bytes, target.object_bytes) == (None, None, 21)
        times = target.bound_times(now_ms=5)
        assert times is not None
        assert (target.has_timestamps, times[0], target.is_exact) == (
            is_told,
            oldest,
            False,
        )
