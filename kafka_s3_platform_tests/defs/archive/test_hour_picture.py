"""The picture of hours on Dagster's page of the check `archived`: what it tells, and how large it is."""

import base64
import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from xml.etree import ElementTree as ET

import dagster as dg

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.archive.checks import MAX_BYTES, evaluate_hourly, read_hours_at_risk, render_picture
from kafka_s3_platform.core.status.index_look import IndexLook
from kafka_s3_platform.core.upkeep.hour_states import COLOURS, MARKS, HourState
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import ago, connector_of_this_hour, evaluated, tick, topic_of
from kafka_s3_platform_tests.support import Sent, archived

FIRST = date(2026, 3, 1)


def shape(markdown: str) -> dict[str, float]:
    """How many hours of each colour the picture has."""
    encoded = re.search(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert encoded is not None
    found: dict[str, float] = {}
    for path in ET.fromstring(base64.b64decode(encoded[1])).iter("{http://www.w3.org/2000/svg}path"):  # noqa: S314
        found[path.attrib["stroke"]] = sum(int(n) for n in re.findall(r"h(\d+)", path.attrib["d"]))
    return found


def rows(*days: Sequence[HourState]) -> list[tuple[date, Sequence[HourState]]]:
    return [(FIRST + timedelta(days=n), states) for n, states in enumerate(days)]


def test_each_hour_has_a_colour_and_a_mark() -> None:
    states: list[HourState] = [state for state in MARKS if state != "ahead"]
    others: list[HourState] = ["complete"] * 13
    told = render_picture(rows([*states, *others, "ahead"]), "UTC")
    assert shape(told) == {COLOURS[state][0]: 14 if state == "complete" else 1 for state in states}
    assert "03-01  !?~.>*x+#o" + "#" * 13 in told
    assert all(text in told for state, (_, text) in MARKS.items() if state != "ahead")


def test_a_month_of_the_worst_is_cut_to_four_kilobytes_and_a_good_one_is_whole() -> None:
    changing: list[HourState] = [state for _ in range(8) for state in ("gap", "partial", "none")]
    worst = render_picture(rows(*[changing] * 31), "UTC")
    assert MAX_BYTES - 400 < len(worst) <= MAX_BYTES
    assert sum(shape(worst).values()) == 24 * worst.count("\n03-"), "picture and marks show the same days"
    same: list[HourState] = ["complete"] * 24
    good = render_picture(rows(*[same] * 31), "UTC")
    assert shape(good) == {COLOURS["complete"][0]: 744}
    assert len(good) < 3000


def test_the_check_of_a_run_shows_the_last_month(lab: Lab) -> None:
    config: ConnectorConfig = connector_of_this_hour(lab.kafka, lab.store, lab.create_topic())
    lab.produce([Sent(timestamp=ago(config, h)) for h in (30, 2)])
    archived(config)
    found = shown(config, None)
    assert (found["complete"], found["open"]) == (2, 1)
    assert set(found) == {"complete", "open", "empty"}


def test_hours_that_the_check_at_risk_has_found_are_marked(lab: Lab, instance: dg.DagsterInstance) -> None:
    config = connector_of_this_hour(lab.kafka, lab.store, lab.create_topic(retention_ms=10 * 86_400_000))
    lab.produce([Sent(timestamp=ago(config, h) + timedelta(minutes=1)) for h in (144, 2)])
    assert read_hours_at_risk(instance, [topic_of(config)]) == {}
    [told] = evaluated(tick(config, "lag__c"))
    instance.report_runless_asset_event(told)
    at_risk = read_hours_at_risk(instance, [topic_of(config)])[lab.topic]
    assert at_risk[0] <= ago(config, 143) < at_risk[1] < ago(config, 100)
    archived(config, [ago(config, 2)])
    # Kafka keeps ten days, and warns at half of them
    assert 20 <= shown(config, at_risk)["at risk"] <= 25
    archived(config)
    assert "at risk" not in shown(config, at_risk)


def shown(config: ConnectorConfig, at_risk: tuple[datetime, datetime] | None) -> dict[str, float]:
    """How many hours of each state the picture of the check has."""
    look = IndexLook("checks", [topic_of(config)])
    picture = evaluate_hourly(topic_of(config), look, at_risk).metadata["hours"]
    assert isinstance(picture, dg.MarkdownMetadataValue)
    names = {colour: state for state, (colour, _) in COLOURS.items()}
    return {names[colour]: count for colour, count in shape(str(picture.value)).items()}
