import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_s3_platform.connect.config.describe import CheckReport, check_report
from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.connect.config.keys.clients import ClientProperty, translate_properties
from kafka_s3_platform.connect.config.keys.config_file import KeyFinding
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.core.config.settings import ConnectorConfig


@dataclass(frozen=True)
class Loaded:
    """A connector of a file, and the finding for each key of the file."""

    config: ConnectorConfig
    report: Callable[[], CheckReport]

    @property
    def findings(self) -> tuple[KeyFinding, ...]:
        return self.report().findings


Load = Callable[..., Loaded]
Check = Callable[..., CheckReport]

MINIMAL = {"name": "events", "topics": "events", "s3.bucket.name": "archive"}
SAMPLES = ["2000", "true", "5", "none", "SSL", "PLAIN", "oidc", "v4", "rebootstrap", "gzip", "all"]
SAMPLES += ["use_all_dns_ips", "/etc/me.keytab", "generic", "https"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A connector folder whose worker.properties names a cluster."""
    (tmp_path / "worker.properties").write_text("bootstrap.servers=broker:9092\n")
    return tmp_path


@pytest.fixture
def load(folder: Path) -> Load:
    """Loads a connector of the minimal keys and the given ones."""

    def load(keys: Mapping[str, object] = {}, env: Mapping[str, str] = {}, worker: str | None = None) -> Loaded:
        files = write(folder, keys, worker), folder / "worker.properties"
        return Loaded(load_connector(*files, env), lambda: check_report(*files, env))

    return load


@pytest.fixture
def check(folder: Path) -> Check:
    """Checks a connector of the minimal keys and the given ones."""

    def check(keys: Mapping[str, object] = {}, env: Mapping[str, str] = {}, worker: str | None = None) -> CheckReport:
        path = write(folder, keys, worker)
        return check_report(path, folder / "worker.properties", env)

    return check


def write(folder: Path, keys: Mapping[str, object], worker: str | None = None) -> Path:
    if worker is not None:
        (folder / "worker.properties").write_text("bootstrap.servers=broker:9092\n" + worker)
    path = folder / "events.json"
    path.write_text(json.dumps({**MINIMAL, **keys}))
    return path


def finding(findings: tuple[KeyFinding, ...], key: str) -> KeyFinding:
    (found,) = [finding for finding in findings if finding.key == key]
    return found


def of_class(report: CheckReport, support: Support) -> tuple[KeyFinding, ...]:
    """The connector file's keys of one class, in the file's order."""
    return tuple(finding for finding in report.findings if finding.support is support)


def sample_value(key: ClientProperty) -> str:
    """A value that the property takes, as a file has it."""
    return next(text for text in SAMPLES if not translate_properties({key.name: text}, min(key.scopes)).refused)
