"""Runs one Apache Kafka node, both broker and KRaft controller. Its jars are checked against recorded digests."""

import base64
import os
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import javaproperties
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafka_s3_platform.core.errors import BrokerUnavailableError, ConfigError, PermanentError
from kafka_s3_platform.core.folders import lock_folder, make_private_folder, replace_file
from kafka_s3_platform.core.java.runtime import (
    choose_options,
    find_java,
    find_pyspark_jars,
    name_class_data,
    remove_others,
)
from kafka_s3_platform.operate.local.ivy import PARTIAL, Download, hash_files
from kafka_s3_platform.operate.local.processes import Daemon
from kafka_s3_platform.operate.local.settings import HOST, KAFKA_VERSION, StackSettings, name_variable

ORGANISATION = "org.apache.kafka"
MODULE = "kafka_2.13"


def fetch_kafka_jars(cache: Path, version: str = KAFKA_VERSION) -> Path:
    """Return the folder below `cache` with the jars of this Kafka. Fetch it if it is missing.

    Raises:
        ConfigError: no digests of this version are recorded.
        TransientError: the jars could not be fetched.
        IntegrityError: the jars differ from the recorded ones.
    """
    digests = find_digests(version)
    # Ivy takes the module's configuration `default`, because `runtime` lacks the broker's own jar.
    download = Download(
        name=f"{MODULE}-{version}",
        title=f"Apache Kafka {version} (about 45 MB)",
        coordinates=f"{ORGANISATION}:{MODULE}:{version}",
        ivy_options=lambda _: ["-dependency", ORGANISATION, MODULE, version],
        list_differences=partial(_compare_digests, digests),
    )
    return download.folder(cache)


def find_digests(version: str) -> Path:
    """Return the file that records the digests of this Kafka's jars. Raises ConfigError if there is none."""
    folder = Path(__file__).parent
    digests = folder / f"{MODULE}-{version}.sha256"
    if not digests.is_file():
        versions = (path.stem.removeprefix(f"{MODULE}-") for path in folder.glob(f"{MODULE}-*.sha256"))
        raise ConfigError(f"{name_variable('kafka_version')}={version}: there are {', '.join(sorted(versions))}")
    return digests


def _compare_digests(digests: Path, libs: Path) -> list[str]:
    """Return the names of files that are missing in the folder, have no recorded digest, or have another digest."""
    recorded = {name: digest for digest, name in map(str.split, digests.read_text().splitlines())}
    return sorted({name for name, _ in recorded.items() ^ hash_files(libs).items()})


JVM_OPTIONS = ("-Xmx768m", "-XX:+ExitOnOutOfMemoryError", "-Djava.net.preferIPv4Stack=true")
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
# Short, because `start_stack` asks again and again until the broker answers.
METADATA_SECONDS = 2.0
# Kafka closes its logs one after the other. If it is killed before it is done, it checks all of them at the next start.
STOP_SECONDS = 30.0
MESSAGE_MAX_BYTES = 8 * 1024 * 1024

# Kafka's jars contain no SLF4J binding, so Kafka would log nothing. PySpark's jars have one for the same Log4j, and the
# classes of Log4j 1, without which Kafka 3 does not start.
LOGGING_JARS = ("slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl", "log4j-1.2-api")
LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
rootLogger.appenderRef.console.ref = console
rootLogger.appenderRef.console.level = WARN
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:kafka.logs.dir}/server.log
appender.file.filePattern = ${sys:kafka.logs.dir}/server.%i.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


@dataclass(frozen=True, slots=True)
class Broker:
    """Kafka with its data, configuration and logs in `<data dir>/kafka`."""

    settings: StackSettings

    @property
    def daemon(self) -> Daemon:
        ports = {name: getattr(self.settings, name) for name in ("kafka_port", "kafka_controller_port")}
        return Daemon("kafka", self.settings.data_dir / "kafka", ports, STOP_SECONDS)

    def start(self) -> None:
        """Fetch and format Kafka if necessary, configure it, and start it. Do not wait for it."""
        self.daemon.start(self.prepare(), env={})

    def prepare(self) -> list[str]:
        """Fetch and format Kafka if necessary, and configure it. Return the command that starts it."""
        folder = make_private_folder(self.daemon.folder)
        jars = [
            *_list_logging_jars(),
            *sorted(fetch_kafka_jars(self.settings.cache, self.settings.kafka_version).iterdir()),
        ]
        replace_file(folder / "server.properties", javaproperties.dumps(self.properties(), timestamp=False))
        replace_file(folder / "log4j2.properties", LOGGING)
        if not self._meta_properties.exists():
            self._format_storage(jars)
        return [*self._java(jars), "kafka.Kafka", str(folder / "server.properties")]

    def check(self) -> None:
        """Ask for the cluster's metadata. Raise BrokerUnavailableError if nothing or another cluster answers."""
        where = f"Kafka at {self.settings.bootstrap_servers}"
        try:
            with AdminClient({"bootstrap.servers": self.settings.bootstrap_servers, "log_level": 0}) as admin:
                metadata = admin.list_topics(timeout=METADATA_SECONDS)
        except KafkaException as err:
            raise BrokerUnavailableError(f"{where} does not answer: {err.args[0].str()}") from err
        if not metadata.brokers:
            raise BrokerUnavailableError(f"{where} has no broker in service yet")
        if metadata.cluster_id != self.cluster_id():
            raise BrokerUnavailableError(f"{where} is cluster {metadata.cluster_id}, not that of {self.daemon.folder}")

    def cluster_id(self) -> str | None:
        """Return the cluster id of this stack's Kafka, or None before its first start."""
        if not self._meta_properties.exists():
            return None
        lines = self._meta_properties.read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("cluster.id="))

    def properties(self) -> dict[str, str]:
        """Return `server.properties` for one node with all roles, listening only on the loopback address."""
        listeners = f"PLAINTEXT://{self.settings.bootstrap_servers},CONTROLLER://{self._controller}"
        node = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": self._controller,
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.daemon.folder / "data"),
            "auto.create.topics.enable": "false",
            "message.max.bytes": str(MESSAGE_MAX_BYTES),
            "replica.fetch.max.bytes": str(MESSAGE_MAX_BYTES),
            "group.initial.rebalance.delay.ms": "0",
            # An empty record twice a second tells nodes how far behind they are. It is a third of an idle Kafka's work.
            "metadata.max.idle.interval.ms": "0",
        }
        return {**node, **_configure_internal_topics(), **self.settings.kafka_properties}

    @property
    def _controller(self) -> str:
        return f"{HOST}:{self.settings.kafka_controller_port}"

    @property
    def _meta_properties(self) -> Path:
        return self.daemon.folder / "data" / "meta.properties"

    def _format_storage(self, jars: Sequence[Path]) -> None:
        """Format Kafka's storage. The first time with this Java and these jars, Java writes class data when it ends.

        This data covers half of a broker's classes. To cover all, a broker would have to be started and stopped.
        """
        data = self._name_class_data(jars)
        if data.is_file():
            _run_storage_tool(self._java(jars), self.daemon.folder)
            return
        cache = self.settings.cache
        with lock_folder(cache), tempfile.TemporaryDirectory(prefix=PARTIAL, dir=cache) as partial:
            partial_data = Path(partial, data.name)
            options = [] if data.is_file() else [f"-XX:ArchiveClassesAtExit={partial_data}"]
            _run_storage_tool(self._java(jars, *options), self.daemon.folder)
            if partial_data.is_file():
                partial_data.replace(data)
                remove_others(data)

    def _java(self, jars: Sequence[Path], *options: str) -> list[str]:
        """Return the command that starts Java quickly with these jars, up to the main class."""
        folder = self.daemon.folder
        java_options = " ".join([*options, *(os.environ.get(name, "") for name in _JAVA_VARIABLES)])
        logs = [f"-Dlog4j2.configurationFile={folder}/log4j2.properties", f"-Dkafka.logs.dir={folder}/logs"]
        quick = choose_options(java_options, self._name_class_data(jars))
        return [str(find_java()), *quick, *JVM_OPTIONS, *options, *logs, "-cp", ":".join(map(str, jars))]

    def _name_class_data(self, jars: Sequence[Path]) -> Path:
        return name_class_data(find_java(), jars, f"kafka_{self.settings.kafka_version}", self.settings.cache)


def _list_logging_jars() -> list[Path]:
    """Return PySpark's jars for Kafka's logging."""
    jars: list[Path] = []
    for name in LOGGING_JARS:
        jars += find_pyspark_jars().glob(f"{name}-[0-9]*.jar")
    return jars


def _configure_internal_topics() -> dict[str, str]:
    """Configure internal topics for one node. They have few kafka partitions, because each start opens all of them."""
    internal = {"offsets.topic": 8, "transaction.state.log": 8, "share.coordinator.state.topic": 1}
    counts = {f"{topic}.num.partitions": str(count) for topic, count in internal.items()}
    replicas = {f"{topic}.replication.factor": "1" for topic in internal}
    least = {f"{topic}.min.isr": "1" for topic in internal if topic != "offsets.topic"}
    return counts | replicas | least


def _run_storage_tool(java: list[str], folder: Path) -> None:
    """Format Kafka's storage as a new cluster. Raise PermanentError with the output if it fails."""
    storage_tool = [*java, "kafka.tools.StorageTool", "format", "--standalone", "--ignore-formatted"]
    options = ["--config", str(folder / "server.properties"), "--cluster-id", _new_cluster_id()]
    process = subprocess.run([*storage_tool, *options], capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise PermanentError(
            f"formatting Kafka's storage in {folder / 'data'} failed: {process.stdout}{process.stderr}"
        )


def _new_cluster_id() -> str:
    """Return a UUID in Kafka's form. It begins with "A", because an option's value cannot begin with a hyphen."""
    return "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
