"""The settings of the embedded stack: its folder, ports and credentials."""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.errors import ConfigError

HOST = "127.0.0.1"
PREFIX = environment.LOCAL_PREFIX
KAFKA_VERSION = "4.3.1"
REGISTRY_PATH = "/apis/ccompat/v7"


@dataclass(frozen=True, kw_only=True, slots=True)
class StackSettings:
    """The environment variable `KAFKA_S3_LOCAL_<FIELD>`, in capitals, sets each field except `kafka_properties`.

    Default ports lie below Linux's and macOS's ephemeral ranges, so no outgoing connection can hold one.
    """

    data_dir: Path = Path(".local")
    cache: Path = field(default_factory=environment.find_stack_folder)
    """For jars of the servers and class data of their Java. They are code, so not in the working directory."""
    kafka_version: str = KAFKA_VERSION
    """The release of Apache Kafka. Digests of its jars are recorded beside `broker.py`."""
    kafka_port: int = int(environment.LOCAL_DEFAULTS[f"{PREFIX}KAFKA_PORT"])
    kafka_controller_port: int = 29093
    s3_port: int = int(environment.LOCAL_DEFAULTS[f"{PREFIX}S3_PORT"])
    s3_grpc_port: int = 28334
    seaweedfs_master_port: int = 28335
    seaweedfs_master_grpc_port: int = 28336
    seaweedfs_volume_port: int = 28337
    seaweedfs_volume_grpc_port: int = 28338
    seaweedfs_filer_port: int = 28339
    seaweedfs_filer_grpc_port: int = 28340
    registry_port: int = int(environment.LOCAL_DEFAULTS[f"{PREFIX}REGISTRY_PORT"])
    aws_access_key_id: str = environment.LOCAL_DEFAULTS[f"{PREFIX}AWS_ACCESS_KEY_ID"]
    aws_secret_access_key: str = field(default_factory=environment.read_stack_secret, repr=False)
    bucket: str = environment.LOCAL_DEFAULTS[f"{PREFIX}BUCKET"]
    kafka_properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the broker. They are added to the stack's own properties, or replace them."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "StackSettings":
        """Read the settings from environment variables. Folders become absolute, so a change of directory does no harm.

        Raises ConfigError if a `KAFKA_S3_LOCAL_` variable is unknown, or if a port is not a port number.
        """
        variables = {name: value for name, value in environ.items() if name.startswith(PREFIX)}
        names = {name_variable(f.name): f for f in fields(cls) if f.name != "kafka_properties"}
        if unknown := sorted(variables.keys() - names.keys()):
            near = difflib.get_close_matches(unknown[0], names, 1, 0)
            raise ConfigError(f"environment variable {unknown[0]} is unknown; the nearest one is {near[0]}")
        values: dict[str, Any] = {
            names[name].name: _parse_value(names[name].type, name, value) for name, value in variables.items()
        }
        settings = cls(**values)
        return replace(settings, data_dir=Path(settings.data_dir).absolute(), cache=Path(settings.cache).absolute())

    def environment(self) -> dict[str, str]:
        """Return these settings as variables for another process, without `kafka_properties`."""
        return {name_variable(f.name): str(getattr(self, f.name)) for f in fields(self) if f.name != "kafka_properties"}

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.kafka_port}"

    @property
    def s3_endpoint(self) -> str:
        return f"http://{HOST}:{self.s3_port}"

    @property
    def registry_url(self) -> str:
        """The URL of the Schema Registry, for Confluent's clients."""
        return f"http://{HOST}:{self.registry_port}{REGISTRY_PATH}"


def name_variable(field_name: str) -> str:
    """Return the environment variable of one field of `StackSettings`."""
    return PREFIX + field_name.upper()


def _parse_value(kind: object, name: str, value: str) -> str | int:
    """Convert a variable's text to its field's type. Raise ConfigError if a port is not a port number."""
    if kind is not int:
        return value
    if not (value.isascii() and value.isdigit() and 0 < int(value) < 65536):
        raise ConfigError(f"environment variable {name}={value!r} is no port number (1 to 65535)")
    return int(value)
