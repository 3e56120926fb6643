"""The repository's own connector files and their documentation."""

from datetime import datetime, timezone
from pathlib import Path

from kafka_s3_platform.config.files import load_connectors
from kafka_s3_platform.config.keys import ALL_KEYS, CONNECTOR_KEYS, OWN_KEYS
from kafka_s3_platform.config.reference import with_tables
from kafka_s3_platform.local.settings import StackSettings

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "connector-files.md"


def test_the_example_archives_flights_in_the_embedded_stack() -> None:
    (flights,) = load_connectors(ROOT / "connectors", {}).connectors
    stack = StackSettings()
    assert (flights.name, flights.topics, flights.store.bucket) == ("flights", ("flights",), stack.bucket)
    assert flights.kafka.properties("consumer") == {"bootstrap.servers": stack.bootstrap_servers}
    assert flights.store.endpoint_url == stack.s3_endpoint
    assert flights.store.access_key_id
    assert flights.store.secret_access_key
    assert flights.store.access_key_id.get_secret_value() == stack.aws_access_key_id
    assert flights.store.secret_access_key.get_secret_value() == stack.aws_secret_access_key
    assert flights.archive.start_hour == datetime(2013, 1, 1, tzinfo=timezone.utc)


def test_the_documents_tables_are_those_of_the_loader() -> None:
    text = DOCUMENT.read_text()
    assert with_tables(text) == text, "write docs/connector-files.md anew with config.reference.with_tables"


def test_no_key_is_declared_twice() -> None:
    names = [key.name for key in ALL_KEYS]
    assert len(names) == len(set(names))
    assert all(CONNECTOR_KEYS.find(name) for name in names)
    assert all(key.name.startswith("archive.") for key in OWN_KEYS)
