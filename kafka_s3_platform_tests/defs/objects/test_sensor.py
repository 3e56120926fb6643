"""The folder sensor of a source connector, against a real S3 server whose requests are counted."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig, ConverterSettings, KafkaSettings, SourceSettings
from kafka_s3_platform.definitions import defs
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import observed, tick
from kafka_s3_platform_tests.faults.proxy import FaultyProxy
from kafka_s3_platform_tests.support import HOUR, connector, watch_s3

NOW = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)
LOOK_BACK = timedelta(days=2)

Put = Callable[..., str]
Seen = dict[str, tuple[int, int]]
"""Topic -> objects and bytes that a tick observed."""


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A source of lines of JSON in hourly folders. It names no topic."""
    kafka = KafkaSettings(bootstrap_servers="none:9092")
    layout = {"format": "json", "partitioner": "Hourly"}
    made = connector(kafka, lab.store, "none", layout=layout, records={"value": ConverterSettings(format="JSON")})
    return made.model_copy(update={"topics": (), "source": SourceSettings()})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def put(lab: Lab) -> Put:
    """Put an object of one line where Connect's sink would; returns its key."""

    def stored(topic: str, folder: str | datetime, first: int = 0, body: bytes = b"{}\n") -> str:
        if isinstance(folder, datetime):
            folder = f"{folder:year=%Y/month=%m/day=%d/hour=%H}"
        key = f"topics/{topic}/{folder}/{topic}+0+{first:010d}.json"
        lab.s3.put_object(Bucket=lab.store.bucket, Key=key, Body=body)
        return key

    return stored


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prefixes of all listings from now on. A page has two entries."""
    made: list[str] = []

    def note(name: str, asked: dict[str, Any]) -> None:
        assert name == "ListObjectsV2"
        asked["MaxKeys"] = 2
        made.append(asked["Prefix"])

    watch_s3(monkeypatch, note)
    return made


class Look:
    """Ticks of the sensor, each with the cursor of the one before it."""

    def __init__(self, config: ConnectorConfig) -> None:
        self.config = config
        self.result = dg.SensorResult(cursor=None)

    def __call__(self) -> Seen:
        self.result = tick(self.config, "folders__c", self.result.cursor)
        return {e.asset_key.path[-1]: (self.number(e, "objects"), self.number(e, "object_bytes")) for e in self.events}

    @property
    def events(self) -> list[dg.AssetObservation]:
        return observed(self.result)

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.result.cursor or "{}")["/objects"]
        return found

    def number(self, event: dg.AssetObservation, name: str) -> int:
        found = event.metadata[name].value
        assert isinstance(found, int)
        return found

    def count_again(self, monkeypatch: pytest.MonkeyPatch) -> Seen:
        """A tick a day later."""
        with monkeypatch.context() as patched:
            patched.setattr("kafka_s3_platform.connect.sources.inventory.COUNT_EVERY", timedelta())
            return self()


@pytest.fixture
def look(config: ConnectorConfig) -> Look:
    return Look(config)


def test_each_topic_is_observed_with_its_objects_and_then_when_there_are_more(look: Look, put: Put) -> None:
    put("clicks", NOW, body=b"{}\n{}\n")
    for hour in (0, 1, 900):
        put("orders", NOW - hour * HOUR)
    assert look() == {"clicks": (1, 6), "orders": (3, 9)}
    orders = next(event for event in look.events if event.asset_key.path == ["c", "objects", "orders"])
    folder = f"orders/{NOW:year=%Y/month=%m/day=%d/hour=%H}"
    assert orders.metadata["newest_folder"].value == folder
    form = str(orders.metadata["restore"].value)
    assert f'"{NOW.isoformat()}"' in form
    assert '["orders"]' in form

    assert look() == {}
    put("orders", NOW + HOUR)
    assert look() == {"orders": (4, 12)}
    [event] = look.events
    records = event.metadata["recent_folders"].value.records  # type: ignore[union-attr]
    assert {r.data["folder"]: r.data["objects"] for r in records}[folder] == 1


def test_a_tick_lists_the_folders_of_the_look_back_and_no_older_ones(look: Look, put: Put, listed: list[str]) -> None:
    old = NOW - timedelta(days=40)
    for n in range(60):
        put("orders", old - n * HOUR)
    put("orders", NOW)
    while not look():
        assert len(listed) <= 100
        listed.clear()
    assert look.number(look.events[0], "objects") == 61
    listed.clear()
    assert look() == {}
    few = len(listed)
    assert few < 12
    assert not [prefix for prefix in listed if f"{old:month=%m/day}" in prefix]

    late = put("orders", NOW - LOOK_BACK, first=7)
    listed.clear()
    assert look() == {"orders": (62, 186)}
    assert late.removeprefix("topics/").rpartition("/")[0] in str(look.events[0].metadata["recent_folders"].value)
    assert len(listed) <= few + 4


def test_what_no_tick_can_see_is_found_by_the_next_count(
    look: Look, put: Put, config: ConnectorConfig, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [NOW - timedelta(days=40 + n) for n in range(3)]
    keys = [put("orders", hour) for hour in old]
    look()
    put("orders", old[0], first=5)
    assert look() == {}
    assert look.count_again(monkeypatch) == {"orders": (4, 12)}
    assert "missing_objects" not in look.events[0].metadata

    for key in keys[1:]:
        lab.s3.delete_object(Bucket=config.store.bucket, Key=key)
    assert look() == {}
    assert look.count_again(monkeypatch) == {"orders": (2, 6)}
    [event] = look.events
    assert event.metadata["missing_objects"].value == 2
    assert "At least 2 objects were deleted" in (event.description or "")
    assert look() == look.count_again(monkeypatch) == {}, "it is told once"


def test_in_folders_that_tell_no_time_a_tick_lists_what_follows_the_last_name(
    config: ConnectorConfig, put: Put, listed: list[str]
) -> None:
    layout = config.layout.model_copy(update={"partitioner": "Default"})
    look = Look(config.model_copy(update={"layout": layout}))
    for n in range(40):
        put("orders", f"partition={n % 2}".replace("1", "0"), first=n)
    while not look():
        pass
    assert look.number(look.events[0], "objects") == 40
    listed.clear()
    assert look() == {}
    assert len(listed) <= 4
    put("orders", "partition=0", first=40)
    assert look() == {"orders": (41, 123)}
    put("orders", "partition=1")
    assert look() == {}, "its name is of another kafka partition than its folder"
    assert "1 name cannot be read" not in str(look.result.skip_reason)


def test_a_listing_goes_on_in_the_next_tick_where_requests_are_few(
    look: Look, put: Put, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.connect.sources.inventory.REQUESTS", 5)
    monkeypatch.setattr("kafka_s3_platform.connect.sources.inventory.COUNT_REQUESTS", 2)
    for topic in ("a", "b"):
        for hour in (0, 1, 2, 24, 900, 901):
            for first in range(3):
                put(topic, NOW - hour * HOUR, first)
    seen: Seen = {}
    for _ in range(100):
        seen |= look()
        assert len(listed) <= 5
        listed.clear()
        if len(seen) == 2:
            break
    assert seen == {"a": (18, 54), "b": (18, 54)}
    put("b", NOW, 9)
    while not (seen := look()):
        pass
    assert seen == {"b": (19, 57)}


def test_a_new_topic_has_an_asset_once_the_code_location_is_loaded_again(
    look: Look, put: Put, home: Path, config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_S3_CONNECTORS", str(home))
    (home / "worker.properties").write_text("bootstrap.servers=broker.invalid:9092\n")
    keys = {
        "name": "c",
        "connector.class": "io.confluent.connect.s3.source.S3SourceConnector",
        "s3.bucket.name": config.store.bucket,
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
    }
    (home / "c.json").write_text(json.dumps(keys))

    def assets() -> set[str]:
        return {key.to_user_string() for key in defs().resolve_all_asset_keys() if key.path[0] == "c"}

    assert assets() == {"c/restored"}
    put("orders", NOW)
    (home / "kafka_s3_topics").touch()
    assert look() == {"orders": (1, 3)}
    assert "cannot be remembered" in str(look.result.skip_reason)
    (home / "kafka_s3_topics").unlink()
    look()
    assert "new topics: orders" in str(look.result.skip_reason)
    assert assets() == {"c/restored", "c/objects/orders"}


def test_a_store_that_hangs_ends_the_tick_in_time_and_the_next_one_goes_on(
    look: Look, put: Put, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("orders", NOW)
    direct = look.config
    store = direct.store.model_copy(update={"endpoint_url": proxy.endpoint})
    look.config = direct.model_copy(update={"store": store})
    held = proxy.hold_response("GET", "list-type")
    with monkeypatch.context() as patched:
        patched.setattr("kafka_s3_platform.core.defs.tick.TICK_SECONDS", 0.5)
        assert look() == {}
    assert "the store answers slowly" in str(look.result.skip_reason)
    held.release()
    assert look() == {"orders": (1, 3)}
