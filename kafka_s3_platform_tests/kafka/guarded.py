"""A Kafka that lets nobody do anything without a right: its users, and the rights that tests give them.

The rights that the docs list, as ACLs.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import REPOSITORY

USERS = 100
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_RESOURCES = {
    "cluster": ResourceType.BROKER,
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}


def guarded_properties(kafka_port: int, controller_port: int, sasl_port: int) -> dict[str, str]:
    """Of a broker that lets everyone do everything at its usual address, and SASL users nothing without an ACL."""
    host = "127.0.0.1"
    listeners = f"PLAINTEXT://{host}:{kafka_port},SASL://{host}:{sasl_port}"
    users = " ".join(f'user_u{n}="secret-{n}"' for n in range(USERS))
    return {
        "listeners": f"{listeners},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{_MODULE} {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


@dataclass(frozen=True, slots=True)
class Right:
    """One operation on one resource; a name that ends with `*` is a prefix. The cluster has no name."""

    resource: str
    name: str
    operation: str

    def binding(self, user: str) -> AclBinding:
        prefix = self.name.endswith("*") and self.name != "*"
        return AclBinding(
            _RESOURCES[self.resource],
            self.name.rstrip("*") if prefix else self.name or "kafka-cluster",
            ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[self.operation],
            AclPermissionType.ALLOW,
        )


class Guarded:
    """The broker. `anyone` are settings of a user with every right."""

    def __init__(self, settings: StackSettings) -> None:
        self.anyone = KafkaSettings(bootstrap_servers=settings.bootstrap_servers)
        self._sasl = settings.kafka_properties["advertised.listeners"].rpartition("//")[2]
        self._numbers = count()

    def user_with(self, rights: Iterable[Right]) -> KafkaSettings:
        """Settings of a user nobody else has, with these rights only."""
        number = next(self._numbers)
        client = AdminClient({"bootstrap.servers": self.anyone.bootstrap_servers})
        bindings = [right.binding(f"u{number}") for right in rights]
        for asked in client.create_acls(bindings).values() if bindings else ():
            asked.result(30)
        common: dict[str, Any] = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": f"u{number}",
            "sasl.password": f"secret-{number}",
        }
        secrets = {name: SecretStr(value) for name, value in common.items()}
        return KafkaSettings(bootstrap_servers=self._sasl, common=secrets)


ROW = re.compile(r"\| (.+?) \| (topic|group|transactional id|cluster)(?: `(.+?)`)? \| ([A-Z_, ]+) \|")
TABLE = [m.groups("") for m in map(ROW.fullmatch, (REPOSITORY / "docs" / "rights.md").read_text().splitlines()) if m]


def rights(*runs: str, **names: str) -> list[Right]:
    """What the table's rows of `runs` say, with names in the place of its capitals."""
    chosen = [row for row in TABLE if row[0].replace("`", "") in runs]
    assert {row[0].replace("`", "") for row in chosen} == set(runs)
    return [
        Right(resource, _named(name, names), operation)
        for _, resource, name, operations in chosen
        for operation in operations.split(", ")
    ]


def _named(name: str, names: dict[str, str]) -> str:
    for word, given in names.items():
        name = name.replace(word, given)
    return name
