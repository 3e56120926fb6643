"""What tests of the store and its index share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform_tests.faults.proxy import FaultyProxy
from kafka_s3_platform_tests.store.http_proxy import running
from kafka_s3_platform_tests.store.servers import Recorder, forget_clients
from kafka_s3_platform_tests.store.written import PART, changed


def flights_of(store: StoreSettings) -> TopicIndex:
    return TopicIndex(ConnectorIndex(store, "_index", "flights"), "topic.a")


@pytest.fixture
def index(store_settings: StoreSettings) -> TopicIndex:
    """An index that nobody has created yet."""
    return flights_of(store_settings)


@pytest.fixture
def through(proxy: FaultyProxy, store_settings: StoreSettings) -> StoreSettings:
    """The store behind the proxy, which is asked once."""
    return store_settings.model_copy(update={"endpoint_url": proxy.endpoint, "max_retries": 0})


@pytest.fixture
def recorder(store_settings: StoreSettings) -> Iterator[Recorder]:
    """A proxy before the store, which keeps what was asked."""
    with running(Recorder(store_settings.endpoint_url or "")) as server:
        yield server


@pytest.fixture
def recorded(recorder: Recorder, store_settings: StoreSettings) -> StoreSettings:
    """The store behind the recorder, with the smallest parts."""
    return changed(store_settings, endpoint_url=recorder.endpoint, part_size=PART)


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """None of this machine's are found. Files of a test's own are `config` and `credentials` in its folder."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    forget_clients()
    yield
    forget_clients()
