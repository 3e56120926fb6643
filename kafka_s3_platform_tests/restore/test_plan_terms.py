"""What makes two requests the same restore: a resume that asks for something else is refused, by name."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from kafka_s3_platform.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.config.transform_catalogue import parse_transforms
from kafka_s3_platform.errors import PreflightError
from kafka_s3_platform.restore.plan import RestorePlan, check_same, estimated_seconds, request_terms
from kafka_s3_platform.restore.request import Outgoing, RecordFilter
from kafka_s3_platform_tests.restore.test_selection import hours, request
from kafka_s3_platform_tests.restore.test_target import plan

STEPS = parse_transforms({"transforms": "a", "transforms.a.type": "DropHeaders", "transforms.a.headers": "x"})
REGISTRY = RegistrySettings(url="http://r", properties={"basic.auth.user.info": SecretStr("me:hidden")})


def planned(**changes: Any) -> RestorePlan:
    """The plan of a request, as it comes back from the bucket."""
    given = replace(plan(), terms=request_terms(request(**changes)))
    return RestorePlan.from_json(given.to_json(), "k")


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


def test_a_plan_with_filters_or_transforms_knows_at_most_how_many_records_there_are() -> None:
    assert planned().exact
    assert not planned(records=RecordFilter(keys=(b"a",))).exact
    assert not planned(outgoing=Outgoing(transforms=STEPS)).exact
    assert planned(outgoing=Outgoing(provenance_headers=True)).exact


def test_a_snapshot_is_estimated_to_read_everything_twice() -> None:
    once, twice = (planned(records=RecordFilter(latest_per_key=latest)) for latest in (False, True))
    assert estimated_seconds(request(), twice) == 2 * estimated_seconds(request(), once)
