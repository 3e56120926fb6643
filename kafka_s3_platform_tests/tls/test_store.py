"""A store whose certificate only those trust who are told to: objects by boto3, the index by delta-rs."""

import time
from collections.abc import Iterator
from functools import partial

import pytest

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import ConfigError, StoreUnavailableError
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.tls.authority import Authority, tls_before

VARIABLES = ("AWS_CA_BUNDLE", "SSL_CERT_FILE")


@pytest.fixture
def store(lab: Lab, stack_settings: StackSettings, authority: Authority) -> Iterator[StoreSettings]:
    """The store's settings, with its address over TLS."""
    with tls_before(stack_settings.s3_port, authority.server) as port:
        yield lab.store.model_copy(update={"endpoint_url": f"https://127.0.0.1:{port}"})


def test_objects_and_index_are_reached_where_both_variables_name_the_authority(
    store: StoreSettings, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in VARIABLES:
        monkeypatch.setenv(variable, str(authority.ca))
    ObjectStore(store).put_new("key", b"body")
    assert ObjectStore(store).get("key") == b"body"
    assert TopicIndex(ConnectorIndex(store, "topics", "c"), "t").open().version == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("expired", "(?s)expired.*Have the server's certificate renewed"),
        ("elsewhere", "(?s)elsewhere.example.com.*Call the server in store.url by a name that its certificate holds"),
    ],
)
def test_a_certificate_that_is_expired_or_anothers_is_told_and_not_tried_again(
    lab: Lab, stack_settings: StackSettings, authority: Authority, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    for variable in VARIABLES:
        monkeypatch.setenv(variable, str(authority.ca))
    with tls_before(stack_settings.s3_port, getattr(authority, name)) as port:
        settings = lab.store.model_copy(update={"endpoint_url": f"https://127.0.0.1:{port}"})
        started = time.monotonic()
        with pytest.raises(ConfigError, match=said):
            ObjectStore(settings).get("key")
        with pytest.raises(ConfigError, match=said):
            TopicIndex(ConnectorIndex(settings, "index", "c"), "t").open()
        assert time.monotonic() - started < 60


def test_no_variable_of_the_environment_turns_verification_off(
    store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ALLOW_INVALID_CERTIFICATES", "ALLOW_INVALID_CERTIFICATES", "allow_invalid_certificates"):
        monkeypatch.setenv(variable, "true")
    monkeypatch.setenv("PYTHONHTTPSVERIFY", "0")
    with pytest.raises(ConfigError, match="certificate"):
        TopicIndex(ConnectorIndex(store, "index", "c"), "t").open()
    with pytest.raises(ConfigError, match="certificate"):
        ObjectStore(store).get("key")


def test_a_port_that_speaks_tls_or_not_is_told_with_the_urls_scheme(store: StoreSettings, lab: Lab) -> None:
    for url, kind, advice in (
        (str(lab.store.endpoint_url).replace("http:", "https:"), ConfigError, "does not speak TLS.*http://"),
        (
            str(store.endpoint_url).replace("https:", "http:"),
            StoreUnavailableError,
            "If that port speaks TLS.*https://",
        ),
    ):
        given = lab.store.model_copy(update={"endpoint_url": url, "max_retries": 0})
        for use in (partial(ObjectStore(given).get, "key"), ConnectorIndex(given, "index", "c").peek):
            with pytest.raises(kind, match=f"(?s){advice}"):
                use()


def test_an_authority_that_nobody_named_is_of_settings_and_not_tried_again(
    store: StoreSettings,
) -> None:
    with pytest.raises(ConfigError, match=r"certificate.*AWS_CA_BUNDLE and SSL_CERT_FILE"):
        ObjectStore(store).get("key")
    with pytest.raises(ConfigError, match=r"(?s)certificate.*AWS_CA_BUNDLE and SSL_CERT_FILE"):
        TopicIndex(ConnectorIndex(store, "index", "c"), "t").open()
