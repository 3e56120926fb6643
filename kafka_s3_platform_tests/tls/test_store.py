"""A store whose certificate only those trust who are told to: objects by boto3, the index by delta-rs."""

from collections.abc import Iterator

import pytest

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform.store.index import TopicIndex
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform_tests.tls.authority import Authority
from kafka_s3_platform_tests.tls.terminator import tls_before

pytestmark = pytest.mark.integration

VARIABLES = ("AWS_CA_BUNDLE", "SSL_CERT_FILE")


@pytest.fixture
def store(
    store_settings: StoreSettings, stack_settings: StackSettings, authority: Authority
) -> Iterator[StoreSettings]:
    """The store's settings, with its address over TLS."""
    with tls_before(stack_settings.s3_port, authority.server) as port:
        yield store_settings.model_copy(update={"endpoint_url": f"https://127.0.0.1:{port}"})


def test_objects_and_index_are_reached_where_both_variables_name_the_authority(
    store: StoreSettings, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in VARIABLES:
        monkeypatch.setenv(variable, str(authority.ca))
    ObjectStore(store).put_new("key", b"body")
    assert ObjectStore(store).get("key") == b"body"
    assert TopicIndex(store, "topics", "c", "t").open().version == 0


def test_an_authority_that_nobody_was_told_of_is_a_matter_of_settings_and_is_not_tried_again(
    store: StoreSettings,
) -> None:
    with pytest.raises(ConfigError, match=r"certificate.*AWS_CA_BUNDLE and SSL_CERT_FILE"):
        ObjectStore(store).get("key")
    with pytest.raises(ConfigError, match=r"(?s)certificate.*AWS_CA_BUNDLE and SSL_CERT_FILE"):
        TopicIndex(store, "index", "c", "t").open()
