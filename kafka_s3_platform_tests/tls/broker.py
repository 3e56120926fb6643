"""A Kafka with listeners of every security protocol, and clients of each."""

from dataclasses import asdict, dataclass
from itertools import product

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform_tests.tls.authority import Authority

USER, PASSWORD = "alice", "wonderland,=\\"
LIMITED = "bob"
"""A user who may do what ACLs allow; `USER` may do everything.

The password of both holds what SCRAM's messages and Java's quotes have to escape.
"""

_HOST = "127.0.0.1"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def java_quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\") + '"'


@dataclass(frozen=True)
class Ports:
    """Of the listeners beside the plain one."""

    mutual: int
    users: int
    expired: int
    elsewhere: int


def secured_properties(kafka_port: int, controller_port: int, ports: Ports, authority: Authority) -> dict[str, str]:
    """Of a broker that also listens with TLS: for clients with a certificate, and for users with a password.

    Two more of its listeners have an expired certificate, and one of another server.
    """
    plain = f"PLAINTEXT://{_HOST}:{kafka_port}"
    secured = [f"{name.upper()}://{_HOST}:{port}" for name, port in asdict(ports).items()]
    listeners = ",".join([plain, *secured])
    stores = {
        f"listener.name.{name}.ssl.keystore.{key}": value
        for name, identity in (("expired", authority.expired), ("elsewhere", authority.elsewhere))
        for key, value in (("type", "PEM"), ("location", str(identity.both)))
    }
    passwords = " ".join(f"user_{user}={java_quoted(PASSWORD)}" for user in (USER, LIMITED))
    return {
        **stores,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{USER}",
        "ssl.principal.mapping.rules": "RULE:^.*CN=([a-z]+).*$/$1/,DEFAULT",
        "listeners": f"{listeners},CONTROLLER://{_HOST}:{controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,MUTUAL:SSL,USERS:SASL_SSL,EXPIRED:SSL,ELSEWHERE:SSL"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.users.plain.sasl.jaas.config": f"{_PLAIN} required {passwords};",
        "listener.name.users.oauthbearer.sasl.jaas.config": f"{_OAUTH} required;",
        "listener.name.users.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
        "listener.name.users.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
    }


def add_scram_users(bootstrap_servers: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    for mechanism, user in product(mechanisms, (USER, LIMITED)):
        asked = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for answer in client.alter_user_scram_credentials([asked]).values():
            answer.result(30)


@dataclass(frozen=True)
class SecuredKafka:
    """Where it listens for clients with certificates, and for users."""

    plain: str
    ports: Ports
    token_url: str
    authority: Authority

    @property
    def mutual(self) -> str:
        return f"{_HOST}:{self.ports.mutual}"

    @property
    def users(self) -> str:
        return f"{_HOST}:{self.ports.users}"

    def as_user(self, way: str, user: str = USER, **changed: str | None) -> KafkaSettings:
        """As a user, by `certificate`, or by a mechanism of SASL."""
        if way == "certificate":
            return self.by_certificate(user, **changed)
        return self.by_token(user, **changed) if way == "OAUTHBEARER" else self.by_password(way, user, **changed)

    def by_token(self, user: str = USER, **changed: str | None) -> KafkaSettings:
        """By a token that the tests' token endpoint gives, which the broker does not check the signature of."""
        given = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": user,
            "sasl.oauthbearer.client.secret": "secret",
            "sasl.oauthbearer.token.endpoint.url": self.token_url,
            "ssl.ca.location": str(self.authority.ca),
        }
        return _settings(self.users, given, changed)

    def without_credentials(self, port: int, **changed: str | None) -> KafkaSettings:
        """Of a listener that asks for none."""
        given = {"security.protocol": "SSL", "ssl.ca.location": str(self.authority.ca)}
        return _settings(f"{_HOST}:{port}", given, changed)

    def by_certificate(self, user: str = USER, **changed: str | None) -> KafkaSettings:
        own, identity = self.authority, {USER: self.authority.client, LIMITED: self.authority.bob}[user]
        given = {
            "security.protocol": "SSL",
            "ssl.ca.location": str(own.ca),
            "ssl.certificate.location": str(identity.certificate),
            "ssl.key.location": str(identity.key),
        }
        return _settings(self.mutual, given, changed)

    def by_password(self, mechanism: str, user: str = USER, **changed: str | None) -> KafkaSettings:
        """Properties to change have underscores for dots; None leaves one out."""
        given = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.authority.ca),
        }
        return _settings(self.users, given, changed)


def _settings(servers: str, given: dict[str, str], changed: dict[str, str | None]) -> KafkaSettings:
    merged = given | {name.replace("_", "."): value for name, value in changed.items()}
    common = {name: SecretStr(value) for name, value in merged.items() if value is not None}
    return KafkaSettings(bootstrap_servers=servers, common=common)
