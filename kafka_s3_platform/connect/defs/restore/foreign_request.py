"""Makes the request to restore a source connector's objects from the config of a run."""

from kafka_s3_platform.connect.restore.foreign_source import ForeignSource
from kafka_s3_platform.core.defs.restore.config import ForeignRestoreConfig
from kafka_s3_platform.core.defs.restore.request import check_selection, make_request, read_outgoing_values, read_rename
from kafka_s3_platform.core.defs.topic import TopicAssets


def make_foreign_request(
    topics: TopicAssets, config: ForeignRestoreConfig, restore_id: str, run_id: str
) -> ForeignSource:
    """Return the request for a source connector by a config. `topics` stands for all of the connector's topics.

    Raises:
        ConfigError: a value cannot be used, or nothing selects the records; the message names the field's path.
    """
    check_selection(config.what, names_topics=bool(config.what.topics or config.what.topics_regex))
    request = make_request(topics, config, read_outgoing_values(config), restore_id, run_id)
    return ForeignSource(request, tuple(config.what.topics), read_rename(config.to), config.what.after)
