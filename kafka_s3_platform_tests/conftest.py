"""Fixtures of all tests. Those that need servers get a Kafka and an S3 of the test session's own."""

import dataclasses
import functools
import gc
import os
import random
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import hypothesis
import pytest
from alembic.script import ScriptDirectory
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from kafka_s3_platform.core.config import environment, plugins
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, RegistrySettings, StoreSettings
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.store import promises
from kafka_s3_platform.operate.local import broker
from kafka_s3_platform.operate.local import stack as embedded
from kafka_s3_platform.operate.local.processes import is_port_free
from kafka_s3_platform.operate.local.seaweedfs import SeaweedFS
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.tools import find_tool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_s3_platform_tests.faults.proxy import FaultyProxy
    from kafka_s3_platform_tests.postgres import Postgres
    from kafka_s3_platform_tests.support import Sent

# How long an example takes says more of the machine than of the code. `make test-long` draws more of them.
hypothesis.settings.register_profile("tests", deadline=None, max_examples=40)
hypothesis.settings.register_profile("long", deadline=None, max_examples=500)
hypothesis.settings.load_profile("tests")

REPOSITORY = Path(__file__).parent.parent
T = TypeVar("T")

# Below the ephemeral range, apart from the stack's default ports.
TEST_PORTS = range(20000, 28000)

# Records of any age stay; what a test asks the broker to delete or compact goes within about a second. With
# fewer threads a broker takes less CPU time, also while nobody asks.
TEST_BROKER = {
    "num.io.threads": "2",
    "num.network.threads": "1",
    "group.coordinator.threads": "1",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class CreateTopic(Protocol):
    """Creates a topic and returns its name. Configs by their Kafka names, dots as underscores."""

    def __call__(self, name: str, kafka_partitions: int = 1, **configs: object) -> str: ...


# For Java that tests start themselves and that lives for some minutes at most, as Kafka and Spark have it.
QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


# Modules whose tests share what takes a process seconds to start: Spark, a registry, a broker of a kind. One of xdist's
# processes takes all modules of a group, and starts it once.
TOGETHER = {
    "Spark and commands": (
        "cli/",
        "reading/test_formats",
        "reading/test_read",
        "spark/test_runner",
        "spark/test_session",
        "formats/test_avro",
    ),
    "Spark and what is killed": (
        *(f"faults/test_{name}" for name in ("archive", "lost_end", "restore", "truncation", "undecided")),
        "defs/archive/test_hourly",
        "defs/test_daemon",
        "hostile/test_restores",
        "upkeep/test_verify",
    ),
    "registry": (
        "archive/test_hostile",
        "archive/test_production_files",
        "archive/test_sink",
        "converters/json_schema/test_decode",
        "converters/protobuf/test_decode",
        "converters/test_avro",
        "converters/test_strangers",
        "hostile/test_live_values",
        "hostile/test_schemas",
        "reading/test_values",
        "registries/test_registries",
        "restore/outgoing/test_outgoing_restore",
        "restore/outgoing/test_schemas",
        "restore/source/test_foreign",
        "sources/test_round_trip",
    ),
    "TLS": ("tls/",),
    "three brokers": ("cluster/",),
}


# Of the modules without Kafka and S3, these take 15 to 60 seconds each. By their names they would begin when all others
# end.
LONGEST_WITHOUT_SERVERS = tuple(
    f"kafka_s3_platform_tests/{module}"
    for module in (
        "spark/test_warm",
        "spark/test_deployed",
        "test_alone",
        "worlds/test_worlds",
        "restore/filters/test_filters",
        "secrets/test_files",
    )
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal tests out by module, or by group of modules."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class LoadGroupsScheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            of_room = module.removeprefix("kafka_s3_platform_tests/")
            return next((group for group, modules in TOGETHER.items() if of_room.startswith(modules)), module)

    return LoadGroupsScheduling(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep Python's collector from looking through what was imported and collected, now and while tests run.

    It all stays until the end, and to look through it takes half a second each time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "stack_settings" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.integration)
    # Files with servers take long. Last come those that take seconds, so that all processes end at the same time.
    with_servers = {item.path for item in items if item.get_closest_marker("integration")}
    items.sort(key=lambda item: (item.path not in with_servers, not item.nodeid.startswith(LONGEST_WITHOUT_SERVERS)))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Let a bare KafkaError fail its test only. It can be raised, but pytest catches BaseException, and would die."""
    test = pyfuncitem.obj

    @functools.wraps(test)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return test(*args, **kwargs)
        except KafkaError as err:  # type: ignore[misc]  # no BaseException to Python's own `isinstance`
            raised = f"a bare KafkaError was raised: {err}"
        pytest.fail(raised)

    pyfuncitem.obj = call


@pytest.fixture(scope="session", autouse=True)
def allowed_plugins() -> Iterator[None]:
    """The tests' own classes may be loaded, as a deployment allows those of its users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(plugins.VARIABLE, "kafka_s3_platform_tests")
        yield


@pytest.fixture(scope="session", autouse=True)
def migrations_read_once() -> Iterator[None]:
    """An instance of Dagster that is opened loads all migrations of three storages, which takes 0.1 s."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", functools.cache(ScriptDirectory.from_config))
        yield


@pytest.fixture(scope="session", autouse=True)
def small_kafka() -> Iterator[None]:
    """Kafka has little memory: several run at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker, "JVM_OPTIONS", (*broker.JVM_OPTIONS, "-Xmx384m"))
        yield


@pytest.fixture(scope="session", autouse=True)
def spark_properties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Spark has two cores and little memory, in this process and in those that tests start."""
    properties = tmp_path_factory.mktemp("spark") / "spark.properties"
    properties.write_text("spark.master=local[2,4]\nspark.driver.memory=512m\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_S3_SPARK_CONF", str(properties))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv(environment.WARM_SPARK, "0")
        yield


@pytest.fixture(scope="session")
def stack_settings(tmp_path_factory: pytest.TempPathFactory) -> StackSettings:
    """Settings of the session's own stack. Kafka's jars are those that `kafka-s3 up` has fetched."""
    cache = os.environ.get("KAFKA_S3_LOCAL_CACHE") or StackSettings().cache
    return StackSettings(
        data_dir=tmp_path_factory.mktemp("stack"),
        cache=Path(cache).absolute(),
        kafka_properties=TEST_BROKER,
        **free_port_settings(),
    )


@pytest.fixture(scope="session")
def stack(stack_settings: StackSettings) -> Iterator[embedded.StackStatus]:
    """Kafka and S3, stopped when the session ends, even if pytest is killed."""
    with stopped_at_exit(stack_settings):
        started = embedded.start_stack(stack_settings)
        with promises_tried_once(started):
            yield started
    shutil.rmtree(stack_settings.data_dir)


@contextmanager
def own_stack(settings: StackSettings, **changes: Any) -> Iterator[StackSettings]:
    """Settings of another stack, with these changes and a folder and ports of its own. What runs there ends with it."""
    changes = {**free_port_settings(), "data_dir": Path(tempfile.mkdtemp(dir=settings.data_dir.parent)), **changes}
    own = dataclasses.replace(settings, **changes)
    with stopped_at_exit(own):
        yield own


@contextmanager
def promises_tried_once(stack: embedded.StackStatus) -> Iterator[None]:
    """Let this process try the promises of the stack's store with one bucket of the tests, not with each of them.

    With its dozen requests, a try takes as long as a small archive. It is done where settings differ, or are those of
    a proxy before the store, and in other processes.
    """
    run = promises._PromiseCheck.run  # noqa: SLF001
    tried: set[bool] = set()

    def run_once(check: Any, uploads: bool) -> None:
        settings = check._store.settings  # noqa: SLF001
        is_of_tests = settings.bucket in _BUCKETS and settings == store_of(stack, settings.bucket)
        if is_of_tests and tried & {uploads, True}:
            return
        run(check, uploads)
        if is_of_tests:
            tried.add(uploads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promises._PromiseCheck, "run", run_once)  # noqa: SLF001
        yield


@pytest.fixture(scope="session")
def registry(stack: embedded.StackStatus, stack_settings: StackSettings) -> RegistrySettings:
    """The stack's Schema Registry, started when the first test asks for it. It is stopped with the stack."""
    embedded.start_registry(stack_settings)
    return RegistrySettings(url=stack_settings.registry_url)


@pytest.fixture
def topic_name() -> str:
    """A topic name no other test has."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def kafka_settings(stack: embedded.StackStatus) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=stack.bootstrap_servers)


@pytest.fixture(scope="module")
def create_topic(kafka_settings: KafkaSettings) -> Iterator[CreateTopic]:
    """Topics are deleted with their module, so that another module in this process may have one of the same name."""
    created: set[str] = set()
    with ClusterAdmin(kafka_settings) as admin:

        def create(name: str, kafka_partitions: int = 1, **configs: object) -> str:
            config = {key.replace("_", "."): str(value) for key, value in configs.items()}
            admin.create_topic(name, kafka_partitions, configs=config)
            created.add(name)
            return name

        yield create
        left = list(created & admin.list_topics())
    if left:
        client = AdminClient({"bootstrap.servers": kafka_settings.bootstrap_servers})
        for answer in client.delete_topics(left).values():
            answer.result(30)


@dataclass(frozen=True)
class Lab:
    """The servers of the session, with a topic that is not there yet and an empty bucket, both of the test's own."""

    kafka: KafkaSettings
    topic: str
    create: CreateTopic
    """For other topics."""
    fixture: Callable[[str], Any]
    """The value of the fixture of this name: what only some tests use is made when it is used."""

    @property
    def store(self) -> StoreSettings:
        settings: StoreSettings = self.fixture("store_settings")
        return settings

    @property
    def s3(self) -> Any:
        """A boto3 client of the store."""
        return self.fixture("s3_client")

    def put_object(self, key: str, body: bytes) -> None:
        """Put an object into the bucket, also where there is one."""
        self.s3.put_object(Bucket=self.store.bucket, Key=key, Body=body)

    def create_topic(self, kafka_partitions: int = 1, **configs: object) -> str:
        return self.create(self.topic, kafka_partitions, **configs)

    def produce(self, records: Iterable["Sent"], **producer: Any) -> None:
        # imported only here: it takes a second, and most tests do without it
        from kafka_s3_platform_tests.support import produce

        produce(self.kafka, self.topic, records, **producer)

    def connector(self, **settings: Any) -> ConnectorConfig:
        """A connector of the topic and the bucket with these settings."""
        from kafka_s3_platform_tests.support import connector

        return connector(self.kafka, self.store, self.topic, **settings)

    def fill(self, sent: Iterable["Sent"], kafka_partitions: int = 1, **settings: Any) -> ConnectorConfig:
        """Create the topic with records. Return a connector with these settings, which has archived nothing."""
        self.create_topic(kafka_partitions)
        self.produce(sent)
        return self.connector(**settings)

    def archive(self, sent: Iterable["Sent"], kafka_partitions: int = 1, **settings: Any) -> ConnectorConfig:
        """Create the topic with records, and archive it by a connector with these settings."""
        from kafka_s3_platform_tests.support import archived

        config = self.fill(sent, kafka_partitions, **settings)
        archived(config)
        return config


@pytest.fixture
def lab(
    request: pytest.FixtureRequest, kafka_settings: KafkaSettings, topic_name: str, create_topic: CreateTopic
) -> Lab:
    return Lab(kafka_settings, topic_name, create_topic, request.getfixturevalue)


# The buckets that were made for tests: what a store promises, it promises for all of them.
_BUCKETS: set[str] = set()


@contextmanager
def fresh_bucket(client: Any) -> Iterator[str]:
    """A bucket, deleted with all it holds at the end."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)
    _BUCKETS.add(name)
    yield name
    # SeaweedFS deletes a bucket with its objects, and so frees the volumes that it reserved.
    client.delete_bucket(Bucket=name)


@pytest.fixture
def bucket(s3_client: Any) -> Iterator[str]:
    """A fresh bucket, deleted with all it holds after the test."""
    with fresh_bucket(s3_client) as name:
        yield name


@pytest.fixture
def untried_bucket(bucket: str) -> str:
    """The test's bucket, with which the store's promises are tried whatever was tried before."""
    _BUCKETS.discard(bucket)
    return bucket


@pytest.fixture(scope="session")
def s3_client(stack: embedded.StackStatus, stack_settings: StackSettings) -> Iterator[Any]:
    """A boto3 S3 client, to look at and to damage what is stored."""
    client = SeaweedFS(stack_settings).client()
    yield client
    client.close()


@pytest.fixture
def store_settings(stack: embedded.StackStatus, bucket: str) -> StoreSettings:
    return store_of(stack, bucket)


@pytest.fixture
def proxy(store_settings: StoreSettings) -> Iterator["FaultyProxy"]:
    """A proxy before the store, which does wrong what a test asks of it."""
    from kafka_s3_platform_tests.faults.proxy import faulty_proxy

    with faulty_proxy(store_settings.endpoint_url or "") as running:
        yield running


@pytest.fixture(scope="module")
def module_store(stack: embedded.StackStatus, s3_client: Any) -> Iterator[StoreSettings]:
    """A bucket for what several tests of a module read and none of them changes."""
    with fresh_bucket(s3_client) as name:
        yield store_of(stack, name)


def store_of(stack: embedded.StackStatus | StackSettings, bucket: str) -> StoreSettings:
    return StoreSettings(
        bucket=bucket,
        region="us-east-1",
        endpoint_url=stack.s3_endpoint,
        access_key_id=SecretStr(stack.aws_access_key_id),
        secret_access_key=SecretStr(stack.aws_secret_access_key),
    )


def connector_keys(store: StoreSettings) -> dict[str, str]:
    """The keys of a connector file that name the store."""
    return {
        "s3.bucket.name": store.bucket,
        "store.url": str(store.endpoint_url),
        "s3.region": store.region,
        "aws.access.key.id": present(store.access_key_id).get_secret_value(),
        "aws.secret.access.key": present(store.secret_access_key).get_secret_value(),
    }


@pytest.fixture(scope="session")
def spark() -> "SparkSession":
    """The Spark session of this process, which runs of Dagster's in this process use too.

    Its Python processes live in the folder where it was started, which must outlive each test.
    """
    from kafka_s3_platform.core.defs.resources import start_session

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)
        return start_session()


DAGSTER_YAML = """
event_log_storage:
  module: kafka_s3_platform.operate.instance.event_log
  class: OneFileEventLogStorage
  config: {{base_dir: {home}/history/runs}}
compute_logs: {{module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}}
telemetry: {{enabled: false}}
"""
"""No run has a database or files of output of its own, which would take as long as the run."""


@pytest.fixture(scope="session")
def fresh_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Dagster home whose databases are made and empty. To make them takes half a second: copy it."""
    import dagster as dg

    home = tmp_path_factory.mktemp("home")
    (home / "dagster.yaml").write_text(DAGSTER_YAML.format(home=home))
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.get_runs(limit=1)
        instance.all_instigator_state()
        instance.get_materialized_partitions(dg.AssetKey("a"))
    return home


def copy_home(fresh_home: Path, to: Path) -> Path:
    """Copy `fresh_home` to a folder that is not there yet, and return it."""
    settings = shutil.copytree(fresh_home, to) / "dagster.yaml"
    settings.write_text(settings.read_text().replace(str(fresh_home), str(to)))
    return to


@pytest.fixture(scope="session")
def postgres() -> Iterator["Postgres"]:
    """A Postgres server for Dagster's storage, from the system's package."""
    from kafka_s3_platform_tests.postgres import PROGRAMS, run_postgres

    for program in PROGRAMS:
        find_tool(program)
    with run_postgres(*free_ports(1)) as server:
        yield server


@pytest.fixture(scope="session")
def fresh_tables(postgres: "Postgres", tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with Dagster's tables, all empty. To make them takes four seconds: copy it."""
    import dagster as dg

    database = postgres.create_database()
    home = tmp_path_factory.mktemp("deployed")
    (home / "dagster.yaml").write_text((REPOSITORY / "deploy/dagster.yaml").read_text())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in postgres.environment(database).items():
            patch.setenv(name, value)
        with dg.DagsterInstance.from_config(str(home)) as instance:
            instance.get_runs(limit=1)
            instance.all_instigator_state()
            instance.get_materialized_partitions(dg.AssetKey("a"))
    return database


@pytest.fixture
def database(postgres: "Postgres", fresh_tables: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database that `deploy/dagster.yaml` names, through the environment, in this process and in those it starts."""
    database = postgres.create_database(fresh_tables)
    for name, value in postgres.environment(database).items():
        monkeypatch.setenv(name, value)
    yield database
    postgres.drop_database(database)


@pytest.fixture(params=["dagster.yaml", "deploy/dagster.yaml"])
def dagster_yaml(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What each of the project's instances is: of development, and of servers."""
    settings = (REPOSITORY / str(request.param)).read_text()
    if request.param == "dagster.yaml":
        return settings.replace(".dagster", f"{tmp_path}/.dagster")  # its paths are relative
    request.getfixturevalue("database")
    return settings


def present(value: T | None) -> T:
    """The value, which has to be there."""
    assert value is not None
    return value


def free_port_settings() -> Any:
    """A free port for each port of `StackSettings`."""
    names = [field.name for field in dataclasses.fields(StackSettings) if field.name.endswith("_port")]
    return dict(zip(names, free_ports(len(names)), strict=True))


def _ports_of_this_process() -> Iterator[int]:
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    own = TEST_PORTS[int(worker.removeprefix("gw")) :: int(workers)]
    return iter(random.sample(own, len(own)))


# Each is handed out once, and to one of xdist's processes: servers start some time after their ports were chosen.
_PORTS = _ports_of_this_process()


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens now."""
    free = (port for port in _PORTS if is_port_free(port))
    return [next(free) for _ in range(count)]


_KILL = """
import json, sys
from pathlib import Path
import psutil

for file in Path(sys.argv[1]).glob("*/process.json"):
    try:
        server = psutil.Process(json.loads(file.read_text())["pid"])
        if str(file.parent) in " ".join(server.cmdline()):
            server.kill()
            server.wait(30)
    except psutil.NoSuchProcess:
        pass
"""


@contextmanager
def stopped_at_exit(settings: StackSettings) -> Iterator[None]:
    """Kill a stack at the end, also when this process is killed: then the watchdog's standard input ends as well.

    `kafka-s3 down` would wait until its data is safe, which nobody needs.
    """
    watchdog = subprocess.Popen(
        ["sh", "-c", 'cat; exec "$0" -c "$1" "$2"', sys.executable, _KILL, str(settings.data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        watchdog.communicate()
    assert watchdog.returncode == 0, f"the Kafka and S3 of {settings.data_dir} could not be stopped"
