"""What tests of restores of our own archive share: requests, and what came of them.

Where the restores of a test go, also where it shares an archive with others.

Runners that do something between the stages of a restore: `replay_streams` sends, then `verify_stream` reads back.

A stream that is alone in its kafka partition of the target is read back as soon as it is sent, and again only if that
kafka partition has changed. Where a step comes before `verify_stream`, all are read back then.

Runs a restore in a process that a test kills.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from kafka_s3_platform.connect.restore.foreign_source import ForeignSource
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.execution import replay_streams
from kafka_s3_platform.core.restore.replay import task
from kafka_s3_platform.core.restore.replay import transactions as marker
from kafka_s3_platform.core.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.verify.read_back import verify_stream
from kafka_s3_platform.core.spark.runner import TaskRunner
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.kafka.topics import until, values
from kafka_s3_platform_tests.support import NOON, InProcessRunner, Sent


def request(config: ConnectorConfig, **changes: Any) -> RestoreRequest:
    given: dict[str, Any] = {"to_topic": target_of(config), "restore_id": "r1", "run_id": "x", "create_topic": True}
    return RestoreRequest(config, config.topics[0], **given | changes)


def restored(config: ConnectorConfig, runner: TaskRunner | None = None, /, **changes: Any) -> RestoreReport:
    return restore(ArchiveSource(request(config, **changes)), runner or InProcessRunner())


def numbered(count: int, **changes: Any) -> list[Sent]:
    return [Sent(b"%d" % n, timestamp=NOON + n * timedelta(milliseconds=1), **changes) for n in range(count)]


def admin_client(kafka: KafkaSettings) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


def topics(kafka: KafkaSettings) -> set[str]:
    return set(admin_client(kafka).list_topics(timeout=10).topics)


def keys(store: StoreSettings, prefix: str = "") -> list[str]:
    return [o.key for o in ObjectStore(store).list(prefix)]


def delete_topic(kafka: KafkaSettings, topic: str) -> None:
    admin = admin_client(kafka)
    admin.delete_topics([topic])[topic].result(30)
    while topic in topics(kafka):
        time.sleep(0.05)


def add_kafka_partitions(kafka: KafkaSettings, topic: str, count: int) -> None:
    client = admin_client(kafka)
    client.create_partitions([NewPartitions(topic, count)])[topic].result(30)
    with ClusterAdmin(kafka) as admin:
        until(lambda: len(admin.describe_topic(topic).kafka_partitions) == count)


def set_configs(kafka: KafkaSettings, topic: str, configs: Mapping[str, str], pause: float = 0.0) -> None:
    """Set configs one after the other, as a person does it: each is in force, for `pause` seconds, before the next."""
    client = admin_client(kafka)
    for name, value in configs.items():
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result(30)
        while (name, value) not in read_configs(kafka, topic).items():
            time.sleep(0.1)
        time.sleep(pause)


def read_configs(kafka: KafkaSettings, topic: str) -> Mapping[str, str]:
    with ClusterAdmin(kafka) as admin:
        return admin.read_topic_configs(topic)


Archive = Callable[..., ConnectorConfig]
"""Archives a topic with some records by a connector with some settings."""

_FOLDER = "_restore"


def own_restores(shared: ConnectorConfig) -> ConnectorConfig:
    """The connector of an archive that other tests restore too: documents and targets of its restores are its own."""
    archive = shared.archive.model_copy(update={"restore_dir": f"{_FOLDER}-{uuid4().hex[:8]}"})
    return shared.model_copy(update={"archive": archive})


def target_of(config: ConnectorConfig) -> str:
    return f"{config.topics[0]}-restored{config.archive.restore_dir.removeprefix(_FOLDER)}"


def once(make: Archive) -> Archive:
    """`make`, which for equal arguments is called once."""
    made: dict[str, ConnectorConfig] = {}

    def get(*given: Any, **settings: Any) -> ConnectorConfig:
        asked = repr((given, sorted(settings.items())))
        if asked not in made:
            made[asked] = make(*given, **settings)
        return made[asked]

    return get


def put_in_parts(client: Any, bucket: str, key: str, body: bytes, metadata: dict[str, str]) -> None:
    """As tools do that copy large objects: the ETag is not that of one PUT."""
    upload = client.create_multipart_upload(Bucket=bucket, Key=key, Metadata=metadata)
    place = {"Bucket": bucket, "Key": key, "UploadId": upload["UploadId"]}
    part = client.upload_part(**place, PartNumber=1, Body=body)
    client.complete_multipart_upload(**place, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})


Step = Callable[[], object]
Change = Callable[[Any], Any]


def do_nothing() -> None:
    """The step of a runner that has none there."""


@dataclass
class Between(InProcessRunner):
    """Takes steps before and after everything is sent, and changes the tasks that send and that read back."""

    before_replay: Step = do_nothing
    after_replay: Step = do_nothing
    before_verify: Step = do_nothing
    replayed: Change = lambda task: task
    verified: Change = lambda task: task

    def run(self, function: Any, tasks: Sequence[Any], max_concurrent: int) -> Iterator[Any]:
        if function is replay_streams:
            self.before_replay()
            is_early = (self.before_verify, self.verified) == (do_nothing, Between.verified)
            groups = tasks if is_early else _read_back_at_the_end(tasks)
            changed = [tuple(map(self.replayed, group)) for group in groups]
            yield from super().run(function, changed, max_concurrent)
            self.after_replay()
        elif function is verify_stream:
            self.before_verify()
            yield from super().run(function, [self.verified(task) for task in tasks], max_concurrent)
        else:
            yield from super().run(function, tasks, max_concurrent)


@dataclass
class ReadingBack(Between):
    """Notes the kafka partitions that are read back after everything was sent, and takes a step when one is first."""

    meanwhile: Step = do_nothing
    read_again: list[int] = field(default_factory=list)

    def run(self, function: Any, tasks: Sequence[Any], max_concurrent: int) -> Iterator[Any]:
        if function is verify_stream and tasks:
            if not self.read_again:
                self.meanwhile()
            self.read_again += [task.kafka_partition for task in tasks]
        yield from super().run(function, tasks, max_concurrent)


@dataclass
class StoppingRunner(InProcessRunner):
    """Ends a restore when it comes to `function`."""

    function: object
    error: BaseException = field(default_factory=InterruptedError)

    def run(self, function: Any, tasks: Sequence[Any], max_concurrent: int) -> Iterator[Any]:
        if function is self.function:
            raise self.error
        groups = _read_back_at_the_end(tasks) if function is replay_streams else tasks
        return super().run(function, groups, max_concurrent)


def _read_back_at_the_end(groups: Sequence[Any]) -> Sequence[Any]:
    return [tuple(replace(task, is_read_back_early=False) for task in group) for group in groups]


class InterruptedRunner(InProcessRunner):
    """Ends a restore in the middle: the archive's last object is not there when it is asked for."""

    def __init__(self, config: ConnectorConfig, s3_client: Any) -> None:
        self._bucket, self._s3 = config.store.bucket, s3_client
        self._topic = config.topics[0]

    def run(self, function: Any, tasks: Any, max_concurrent: int) -> Any:
        if function is not replay_streams:
            return super().run(function, tasks, max_concurrent)
        return self._interrupted(function, tasks, max_concurrent)

    def _interrupted(self, function: Any, tasks: Any, max_concurrent: int) -> Iterable[Any]:
        key = max(o.key for group in tasks for t in group for o in t.stream.objects)
        body = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        self._s3.delete_object(Bucket=self._bucket, Key=key)
        try:
            yield from super().run(function, tasks, max_concurrent)
        finally:
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body)


def run_restore(asked: RestoreRequest | ForeignSource, checkpoint_records: int, transaction_records: int) -> None:
    """The numbers: after how many records it notes how far it came, and how many a transaction has."""
    task.CHECKPOINT_RECORDS = checkpoint_records
    marker.TRANSACTION_RECORDS = transaction_records
    if isinstance(asked, ForeignSource):
        restore(asked, InProcessRunner())
    else:
        restore(ArchiveSource(asked), InProcessRunner())


def check_restored_once(config: ConnectorConfig, to_topic: str = "", kafka_partitions: int = 1) -> None:
    """The target's values are the source's, in order and each once."""
    topics = (config.topics[0], to_topic or target_of(config))
    for kafka_partition in range(kafka_partitions):
        was, now = (values(config.kafka, topic, kafka_partition) for topic in topics)
        assert now == was
