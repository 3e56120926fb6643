"""What a connector file will do here, key by key, without loading it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_s3_platform.config.dialects import CONNECT
from kafka_s3_platform.config.mapping import resolve
from kafka_s3_platform.config.parse import read_connector_file
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.config.sheet import Finding, KeyClass
from kafka_s3_platform.config.worker import load_worker
from kafka_s3_platform.errors import ConfigError


@dataclass(frozen=True)
class CheckReport:
    """Every key of a connector file and of its worker.properties.

    `problems` are errors of a whole file, which has no findings then; `config` is None unless the connector loads.
    """

    path: Path
    worker: Path
    name: str | None
    findings: tuple[Finding, ...]
    worker_findings: tuple[Finding, ...]
    problems: tuple[str, ...]
    config: ConnectorConfig | None

    @property
    def ok(self) -> bool:
        return self.config is not None

    @property
    def connector_class(self) -> str:
        """As written, or what it is where the file names none."""
        return next((f.value for f in self.findings if f.key == "connector.class"), CONNECT.short_name)


def check_report(path: Path, worker: Path, env: Mapping[str, str]) -> CheckReport:
    """Judges a connector file over a worker.properties. Raises nothing for what is wrong in them."""
    try:
        cluster = load_worker(worker, env)
    except ConfigError as err:
        return CheckReport(path, worker, None, (), (), (str(err),), None)
    try:
        file = read_connector_file(path)
    except ConfigError as err:
        return CheckReport(path, worker, None, (), cluster.findings, (str(err),), None)
    resolution = resolve(file, cluster, env)
    usable = all(finding.key_class is not KeyClass.REFUSED for finding in cluster.findings)
    config = resolution.config if usable else None
    return CheckReport(path, worker, resolution.name, resolution.findings, cluster.findings, (), config)
