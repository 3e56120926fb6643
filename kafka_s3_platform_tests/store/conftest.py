"""What tests of the index share."""

import pytest

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.store.index import ConnectorIndex, TopicIndex


@pytest.fixture
def index(store_settings: StoreSettings) -> TopicIndex:
    """An index that nobody has created yet."""
    return TopicIndex(ConnectorIndex(store_settings, "_index", "flights"), "topic.a")
