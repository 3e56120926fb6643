"""A Kafka with listeners of every security protocol, and clients of each."""

from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from pydantic import SecretStr

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform_tests.tls.authority import Authority

USER, PASSWORD = "alice", "wonderland,=\\"
"""The password holds what SCRAM's messages and Java's quotes have to escape."""

_HOST = "127.0.0.1"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def java_quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\") + '"'


def secured_properties(
    kafka_port: int, controller_port: int, mutual_port: int, sasl_port: int, authority: Authority
) -> dict[str, str]:
    """Of a broker that also listens with TLS: for clients with a certificate, and for users with a password."""
    listeners = f"PLAINTEXT://{_HOST}:{kafka_port},MUTUAL://{_HOST}:{mutual_port},USERS://{_HOST}:{sasl_port}"
    return {
        "listeners": f"{listeners},CONTROLLER://{_HOST}:{controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,MUTUAL:SSL,USERS:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.users.plain.sasl.jaas.config": f"{_PLAIN} required user_{USER}={java_quoted(PASSWORD)};",
        "listener.name.users.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
        "listener.name.users.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
    }


def add_scram_user(bootstrap_servers: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        asked = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for answer in client.alter_user_scram_credentials([asked]).values():
            answer.result(30)


@dataclass(frozen=True)
class SecuredKafka:
    """Where it listens for clients with certificates, and for users."""

    mutual: str
    users: str
    authority: Authority

    def by_certificate(self, **changed: str | None) -> KafkaSettings:
        own, identity = self.authority, self.authority.client
        given = {
            "security.protocol": "SSL",
            "ssl.ca.location": str(own.ca),
            "ssl.certificate.location": str(identity.certificate),
            "ssl.key.location": str(identity.key),
        }
        return _settings(self.mutual, given, changed)

    def by_password(self, mechanism: str, **changed: str | None) -> KafkaSettings:
        """Properties to change have underscores for dots; None leaves one out."""
        given = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.authority.ca),
        }
        return _settings(self.users, given, changed)


def _settings(servers: str, given: dict[str, str], changed: dict[str, str | None]) -> KafkaSettings:
    merged = given | {name.replace("_", "."): value for name, value in changed.items()}
    common = {name: SecretStr(value) for name, value in merged.items() if value is not None}
    return KafkaSettings(bootstrap_servers=servers, common=common)
