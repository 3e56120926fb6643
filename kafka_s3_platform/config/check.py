"""Reports the effect of each key of a connector file, without loading the file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_s3_platform.config.dialects import CONNECT
from kafka_s3_platform.config.keys.sheet import KeyClass, KeyFinding
from kafka_s3_platform.config.mapping import resolve_connector
from kafka_s3_platform.config.parse import read_connector_file
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.config.worker import load_worker
from kafka_s3_platform.errors import ConfigError


@dataclass(frozen=True)
class CheckReport:
    """The findings for every key of a connector file and of its worker.properties.

    `problems` are errors of a file as a whole: then it has no findings. `config` is None unless the connector loads.
    """

    path: Path
    worker: Path
    name: str | None
    findings: tuple[KeyFinding, ...]
    worker_findings: tuple[KeyFinding, ...]
    problems: tuple[str, ...]
    config: ConnectorConfig | None

    @property
    def ok(self) -> bool:
        """True if the connector loads."""
        return self.config is not None

    @property
    def connector_class(self) -> str:
        """The class as the file writes it, or the default if the file names none."""
        return next((f.value for f in self.findings if f.key == "connector.class"), CONNECT.short_name)


def check_report(path: Path, worker: Path, env: Mapping[str, str]) -> CheckReport:
    """Check a connector file together with a worker.properties. Their faults are reported, not raised."""
    try:
        cluster = load_worker(worker, env)
    except ConfigError as err:
        return CheckReport(path, worker, None, (), (), (str(err),), None)
    try:
        file = read_connector_file(path)
    except ConfigError as err:
        return CheckReport(path, worker, None, (), cluster.findings, (str(err),), None)
    resolution = resolve_connector(file, cluster, env)
    usable = all(finding.key_class is not KeyClass.REFUSED for finding in cluster.findings)
    config = resolution.config if usable else None
    return CheckReport(path, worker, resolution.name, resolution.findings, cluster.findings, (), config)
