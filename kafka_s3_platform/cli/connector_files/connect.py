"""Tries a connector's file against its real broker, bucket and Schema Registry, with the rights of its runs."""

from collections.abc import Iterator, Mapping
from functools import partial
from uuid import uuid4

from kafka_s3_platform.cli.connector_files.bucket_rules import try_bucket_rules
from kafka_s3_platform.cli.connector_files.findings import Answer, Finding, Judgement, Probe, gather_findings, judge
from kafka_s3_platform.connect.converters.registry import open_registry
from kafka_s3_platform.core.archive.clock import refuse_wrong_clock
from kafka_s3_platform.core.config.settings import ConnectorConfig, RegistrySettings, match_topics
from kafka_s3_platform.core.errors import AuthorizationError, ErrorCode, MissingTopicError, PlatformError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.objects import NO_ETAG, ObjectStore
from kafka_s3_platform.core.store.promises import WRITE_CHECK, check_promises
from kafka_s3_platform.core.text import count_noun

SECONDS = 30.0
"""The longest time for the broker, the bucket and each registry. They are tried at the same time."""

BROKER_SECONDS = 5.0

UNTRIED = Finding(
    "the rest",
    Judgement.NOT_TRIED,
    "to read and decode a record, the clocks of brokers, and the rights of restores on their target topics",
)


def try_connector(config: ConnectorConfig) -> list[Finding]:
    """Try the servers and rights of a connector's file. Takes about SECONDS at most.

    Writes only the object with which every run checks the promises of the store. It stays, as after a run.
    """
    probes: dict[str, Probe] = {"Kafka": partial(_try_kafka, config), "bucket": partial(_try_bucket, config)}
    for side, registry in _find_registries(config).items():
        probes[f"Schema Registry of {side}s"] = partial(_try_registry, config, side, registry)
    return gather_findings(probes, SECONDS)


def _try_kafka(config: ConnectorConfig) -> Iterator[Finding]:
    """Try the cluster, and the rights of the connector's runs on its topics."""
    with ClusterAdmin(config.kafka, BROKER_SECONDS) as admin:
        try:
            cluster = admin.describe_cluster()
        except PlatformError as err:
            yield Finding("broker", Judgement.WRONG, str(err))
            yield Finding("topics", Judgement.NOT_TRIED, "no broker answers")
            return
        answer = (
            f"{config.kafka.bootstrap_servers} answers: cluster {cluster.cluster_id}, brokers {cluster.broker_count}"
        )
        yield Finding("broker", Judgement.OK, answer)
        if config.source is not None:
            return
        yield from _try_topics(config, admin)
        if letters := config.records.errors.dead_letter_topic:
            yield judge(f"dead letter topic {letters}", partial(_try_dead_letters, admin, letters))
        if config.archive.consumer_groups or config.archive.publish_offsets:
            yield Finding("consumer groups", Judgement.NOT_TRIED, "the rights on groups that the file names")


def _try_topics(config: ConnectorConfig, admin: ClusterAdmin) -> Iterator[Finding]:
    """Ask Kafka for the topics' descriptions and offsets. Yield what works and what does not."""
    topics = config.topics if config.topics_regex is None else match_topics(config, admin.list_topics())
    if not topics:
        text = f"none that this user may DESCRIBE matches topics.regex={config.topics_regex}"
        yield Finding("topics", Judgement.WARNING, text)
        return
    descriptions = admin.describe_topics(topics)
    frontiers_by_topic = admin.frontiers_of(
        {topic: facts.kafka_partitions for topic, facts in descriptions.results.items()}
    )
    unread = "this user may see it and not read it: give it READ on topic {} (docs/rights.md)"
    errors = {
        **descriptions.failures,
        **frontiers_by_topic.failures,
        **{
            topic: error for topic, answers in frontiers_by_topic.results.items() for error in answers.failures.values()
        },
        **{topic: unread.format(topic) for topic, facts in descriptions.results.items() if _lacks_right(facts, "READ")},
    }
    for topic, error in errors.items():
        yield Finding(f"topic {topic}", Judgement.WRONG, str(error))
    good_topics = [topic for topic in topics if topic not in errors]
    frontiers = [frontier for topic in good_topics for frontier in frontiers_by_topic.results[topic].results.values()]
    if good_topics:
        count = sum(frontier.high_watermark - frontier.log_start_offset for frontier in frontiers)
        offsets = f"{count_noun(count, 'offset')} in {count_noun(len(frontiers), 'kafka partition')}"
        text = f"{len(good_topics):,} of {len(topics):,} are there, with their configs and offsets ({offsets})"
        yield Finding("topics", Judgement.OK, text)
    if unknown := [topic for topic in good_topics if descriptions.results[topic].operations is None]:
        text = f"READ on {', '.join(unknown)}: the cluster does not say what this user may do"
        yield Finding("topics", Judgement.NOT_TRIED, text)


def _lacks_right(topic: TopicDescription, operation: str) -> bool:
    """Return True if the cluster lists this user's rights on a topic, and this operation is not among them."""
    return topic.operations is not None and operation not in topic.operations


def _try_dead_letters(admin: ClusterAdmin, topic: str) -> Answer:
    """Ask the cluster if this user may write to the dead letter topic."""
    try:
        description = admin.describe_topic(topic)
    except MissingTopicError:
        return Judgement.NOT_TRIED, "it is not there. The first dead letter makes it, if CREATE is given"
    if _lacks_right(description, "WRITE"):
        return Judgement.WRONG, "this user may not write to it: give it WRITE (docs/rights.md)"
    if description.operations is None:
        return Judgement.NOT_TRIED, "WRITE: the cluster does not say what this user may do"
    return "may be written to"


def _try_bucket(config: ConnectorConfig) -> Iterator[Finding]:
    """Try the rights of the connector's runs on its bucket, and compare the clocks."""
    store = ObjectStore(config.store)
    is_source = config.source is not None
    # runs of a sink need not list its objects
    folder = f"{config.layout.topics_dir if is_source else config.archive.index_dir}/".lstrip("/")
    try:
        next(store.list(folder), None)
        yield Finding("bucket", Judgement.OK, f"{store.uri(folder)} can be listed")
    except PlatformError as err:
        yield Finding("bucket", Judgement.WRONG, str(err))
        # runs of a sink need not list
        if not isinstance(err, AuthorizationError) or err.code is ErrorCode.STORE_LOGIN:
            reason = "the bucket does not answer, or does not take the credentials"
            yield Finding("rights on the bucket, index, clock", Judgement.NOT_TRIED, reason)
            return
    if is_source:
        yield judge("objects", partial(_try_reading, config, store))
        yield judge("writes of restores", partial(_try_restores, config, Judgement.WRONG))
    else:
        yield from _try_sink(config, store)
    yield judge("clock", partial(_try_clock, config, store))


def _try_sink(config: ConnectorConfig, store: ObjectStore) -> Iterator[Finding]:
    """Try the rights that a sink's runs need on the bucket, and judge the bucket's rules."""
    yield judge("index", partial(_read_index, config))
    yield judge("writes to the index", partial(_try_writes, config, store))
    yield judge("right to delete", partial(_try_deleting, config, store))
    layout = config.layout
    for folder in [layout.topics_dir, *([layout.daily_dir] if layout.is_envelope else [])]:
        yield judge(f"writes to {folder}", partial(_write_in_vain, store, folder))
    yield judge("writes of restores", partial(_try_restores, config, Judgement.WARNING))
    yield try_bucket_rules(config, store)


def _read_index(config: ConnectorConfig) -> str:
    """Read the index of the connector, if it is there."""
    index = ConnectorIndex.of(config)
    snapshot = index.peek()
    if snapshot is None:
        return f"{index.uri} is not there yet: the first run creates it"
    return f"{index.uri} can be read: topics {len(snapshot.topics):,}"


def _try_writes(config: ConnectorConfig, store: ObjectStore) -> str:
    """Check the store's promises to the index: conditional writes, and up-to-date listings."""
    check_promises(store, config.archive.index_dir, uploads=True)
    uri = store.uri(f"{config.archive.index_dir}/{WRITE_CHECK}")
    return f"{uri} was written, read and listed. Writes and uploads whose condition is false are refused"


def _try_deleting(config: ConnectorConfig, store: ObjectStore) -> str:
    """Ask the store to delete a missing object, as a test of the right to delete.

    The object of the promises is not used: a run that checks the promises now would take its deletion for a broken one.
    """
    try:
        store.delete(f"{config.archive.index_dir}/{WRITE_CHECK}-{uuid4().hex}", NO_ETAG)
    except AuthorizationError:
        return "none, and runs need none. Only `vacuum`, `retain` and `upkeep` do"
    return "it is given, for the folder of indexes (asked for an object that is not there)"


def _write_in_vain(store: ObjectStore, folder: str) -> str:
    """Try the right to write to a folder by a write whose condition is false, so nothing is written."""
    key = f"{folder}/{WRITE_CHECK}".lstrip("/")
    store.write_in_vain(key)
    return f"{store.uri(key)} could be written. The condition of the request was false, so nothing was"


def _try_restores(config: ConnectorConfig, if_refused: Judgement) -> Answer:
    """Try the right to write the documents of restores. `if_refused` is the verdict if the right is missing."""
    try:
        return _write_in_vain(ObjectStore(config.restore_store), config.archive.restore_dir)
    except AuthorizationError as err:
        return if_refused, f"{err}. Only restores need this"


def _try_reading(config: ConnectorConfig, store: ObjectStore) -> Answer:
    """Read the first byte of one of a source connector's objects."""
    prefix = f"{config.layout.topics_dir}/".lstrip("/")
    readable = next((info for info in store.list(prefix) if info.size and not info.is_cold), None)
    if readable is None:
        problem = f"{store.uri(prefix)} has no object that can be read now: is topics.dir right, or are all cold?"
        return Judgement.WARNING, problem
    store.read_range(readable.key, 0, 1, readable.etag)
    return f"{store.uri(readable.key)} can be read (its first byte was)"


def _try_clock(config: ConnectorConfig, store: ObjectStore) -> Answer:
    """Compare this machine's clock with the store's."""
    refuse_wrong_clock(config, store)
    reading = store.clock.latest
    if reading is None:
        return Judgement.NOT_TRIED, "the answers of the store have no time (Date)"
    distance = abs(reading.difference).total_seconds()
    tolerance = f"archive.clock.tolerance.ms={config.archive.clock_tolerance_ms}"
    return f"at least {distance:.0f} s from the store's, and {tolerance}"


def _find_registries(config: ConnectorConfig) -> Mapping[str, RegistrySettings]:
    """Map each side to the registry of its converter. A shared registry appears once."""
    registries: dict[str, RegistrySettings] = {}
    for side, converter in (("value", config.records.value), ("key", config.records.key)):
        if converter.registry is not None and converter.registry not in registries.values():
            registries[side] = converter.registry
    return registries


def _try_registry(config: ConnectorConfig, side: str, settings: RegistrySettings) -> Iterator[Finding]:
    """Ask the Schema Registry for a subject of the connector."""
    registry = open_registry(settings)
    subject = f"{next(iter(config.topics), 'kafka-s3')}-{side}"
    versions = registry.list_versions(subject)
    answer = f"{registry.url} answers: subject {subject} has {count_noun(len(versions), 'version')}"
    yield Finding(f"Schema Registry of {side}s", Judgement.OK, answer)
