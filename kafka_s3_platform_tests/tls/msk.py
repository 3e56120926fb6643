"""A broker that is logged in to as to Amazon MSK by IAM: it checks shape, signature and expiry of tokens."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_s3_platform.connect.config.keys.clients import translate_properties
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.operate.local.broker import Broker
from kafka_s3_platform_tests.tls.authority import Authority
from kafka_s3_platform_tests.tls.broker import USER

REGION = "eu-central-1"
KEY, SECRET = "AKIAEXAMPLE", "archive/secret"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_SOURCE = Path(__file__).with_name("MskValidator.java")


@dataclass(frozen=True, slots=True)
class MskBroker(Broker):
    """The embedded one, with the validator of tokens beside its jars."""

    def _java(self, jars: Sequence[Path], *options: str) -> list[str]:
        classes = self.settings.data_dir / "validator"
        if not classes.exists():
            classes.mkdir(parents=True)
            compiler = ["javac", "-cp", ":".join(map(str, jars)), "-d", str(classes), str(_SOURCE)]
            subprocess.run(compiler, check=True, capture_output=True, text=True)
        # behind the jars: Java's class data are of a class path that begins with them
        *command, class_path = Broker._java(self, jars, *options)  # noqa: SLF001
        return [*command, f"{class_path}:{classes}"]


def msk_properties(kafka_port: int, controller_port: int, port: int, authority: Authority) -> dict[str, str]:
    """Of a broker that listens for logins by IAM, too. Whoever has logged in does so again within ten seconds."""
    listeners = f"PLAINTEXT://127.0.0.1:{kafka_port},IAM://127.0.0.1:{port}"
    bearer = "listener.name.iam.oauthbearer"
    return {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,IAM:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server.both),
        "listener.name.iam.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{bearer}.connections.max.reauth.ms": "10000",
        f"{bearer}.sasl.server.callback.handler.class": "MskValidator",
        f"{bearer}.sasl.jaas.config": (
            # the first option is for a token of the broker's own, which it insists on and never sends
            f'{_OAUTH} required unsecuredLoginStringClaim_sub="broker" region="{REGION}" secret_{KEY}="{SECRET}"'
            f' user_{KEY}="{USER}";'
        ),
    }


@dataclass(frozen=True)
class MskKafka:
    """Where it listens."""

    plain: str
    bootstrap_servers: str
    authority: Authority

    def settings(self, **changed: str) -> KafkaSettings:
        """As a file of Java names it. Properties to change have underscores for dots."""
        entries = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": 'software.amazon.msk.auth.iam.IAMLoginModule required awsDebugCreds="true";',
            "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
            "ssl.ca.location": str(self.authority.ca),
            **{name.replace("_", "."): value for name, value in changed.items()},
        }
        outcome = translate_properties(entries, "common")
        assert outcome.refused == {}
        return KafkaSettings.model_validate({"bootstrap_servers": self.bootstrap_servers, "common": outcome.properties})
