"""What makes two requests the same restore: a resume that asks for something else is refused, by name."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from kafka_s3_platform.config.keys.transforms import parse_transforms
from kafka_s3_platform.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.errors import PreflightError
from kafka_s3_platform.restore.request import Outgoing, RecordFilter
from kafka_s3_platform.restore.source.archive_plan import ArchivePlan, check_same
from kafka_s3_platform.restore.source.base import estimate_seconds
from kafka_s3_platform.restore.source.selection import select_records
from kafka_s3_platform.restore.source.terms import collect_request_terms
from kafka_s3_platform_tests.restore.preflight.test_target import going, plan
from kafka_s3_platform_tests.restore.source.test_selection import hours, request

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


def steps(**changes: str) -> Outgoing:
    """The transforms above, with some other options."""
    return Outgoing(transforms=parse_transforms({**SECRET_STEPS, **changes}))


def planned(**changes: Any) -> ArchivePlan:
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
    check_same(request(**changes), planned(**changes))
    with pytest.raises(PreflightError, match=f"{named} was None, is now"):
        check_same(request(**changes), planned())
    with pytest.raises(PreflightError, match=f"{named} was .*, is now None"):
        check_same(request(), planned(**changes))
    assert "hidden" not in planned(**changes).to_json().decode()


def test_options_of_plug_ins_are_not_in_a_plan_and_a_resume_still_tells_whether_they_are_the_same() -> None:
    outgoing = steps()
    found = planned(outgoing=outgoing)
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
    found = planned(outgoing=steps(**looks))
    assert looks["transforms.m.vault"] not in found.to_json().decode()
    check_same(request(outgoing=steps(**looks)), found)


def test_a_plan_with_filters_or_transforms_knows_at_most_how_many_records_there_are() -> None:
    assert planned().is_exact
    assert not planned(records=RecordFilter(keys=(b"a",))).is_exact
    assert not planned(outgoing=Outgoing(transforms=STEPS)).is_exact
    assert planned(outgoing=Outgoing(provenance_headers=True)).is_exact


def test_a_snapshot_is_estimated_to_read_everything_twice() -> None:
    once, twice = (planned(records=RecordFilter(latest_per_key=latest)) for latest in (False, True))
    assert estimate_seconds(request(), going(twice)) == 2 * estimate_seconds(request(), going(once))
