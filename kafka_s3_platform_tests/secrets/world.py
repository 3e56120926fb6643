"""Texts that stand for secrets, and how they are found again, whatever they are wrapped in.

Deployments with a marked secret in every place that takes one, on the session's Kafka and S3.
"""

import base64
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from kafka_s3_platform.core.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform_tests.secrets import leaky
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, running
from kafka_s3_platform_tests.store.servers import Recorder, Sts

MARK = "mark-7f3a"


def mark(place: str) -> str:
    """The secret of one place. It needs no escape in URLs, JSON or properties."""
    return f"{MARK}-" + re.sub("[^a-z0-9]+", "-", place.casefold()).strip("-")


def found_in(name: str, content: str | bytes) -> list[str]:
    """Each mark in a text, or in what it is packed into, with what stands around it."""
    raw = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    return [
        f"{name}: ...{layer[max(0, hit.start() - 200) : hit.end() + 60].decode(errors='replace')}..."
        for layer in _layers(raw)
        for hit in re.finditer(_ANY, layer)
    ]


def _encoded(text: bytes) -> Iterator[bytes]:
    """A text as it may stand in another: the inner part of its base64 is one of three."""
    yield re.escape(text)
    yield text.hex().encode()
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + text).rstrip(b"=")
        yield re.escape(coded[(shift * 4 + 2) // 3 : -1])


_ANY = b"|".join(_encoded(MARK.encode()))


def _layers(content: bytes) -> Iterator[bytes]:
    yield content
    for unpack in (_gunzipped, _inflated, _zstd, _of_parquet, _of_base64):
        try:
            inner = unpack(content)
        except (ValueError, OSError, EOFError, zlib.error, pa.ArrowException):
            continue
        if inner:
            yield from _layers(inner)


def _gunzipped(content: bytes) -> bytes:
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else b""


def _inflated(content: bytes) -> bytes:
    return zlib.decompress(content) if content[:1] == b"\x78" else b""


def _zstd(content: bytes) -> bytes:
    if content[:4] != b"\x28\xb5\x2f\xfd":
        return b""
    return bytes(pa.CompressedInputStream(pa.BufferReader(content), "zstd").read())


def _of_parquet(content: bytes) -> bytes:
    if content[:4] != b"PAR1":
        return b""
    table = pq.read_table(BytesIO(content))
    return repr((table.to_pylist(), table.schema.metadata)).encode()


def _of_base64(content: bytes) -> bytes:
    """What Dagster packs, such as the cursors of its own sensors: it may be deflated, too."""
    if len(content) < 16 or not re.fullmatch(rb"[A-Za-z0-9+/=\s]+", content):
        return b""
    return base64.b64decode(content, validate=False)


def all_found(texts: Iterable[tuple[str, str | bytes]]) -> list[str]:
    """`found_in` each of some named texts."""
    return [hit for name, content in texts for hit in found_in(name, content)]


NEVER = datetime.max.replace(tzinfo=timezone.utc)
NOBODY = "http://127.0.0.1:1"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="{}" password="{}";'

WORKER = {
    "sasl.username": mark("sasl.username"),
    "sasl.password": mark("sasl.password"),
    "config.providers": "dir",
    "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    "ssl.key.password": "${dir:FOLDER/restore:key-password}",
    "consumer.sasl.jaas.config": JAAS.format(mark("jaas user"), mark("jaas password")),
    "producer.sasl.oauthbearer.client.secret": mark("oauthbearer"),
    "admin.ssl.keystore.type": "PKCS12",
    "admin.ssl.keystore.location": "FOLDER/restore/keystore.p12",
    "admin.ssl.keystore.password": mark("keystore"),
    "request.timeout.ms": "3000",
}
"""Of a cluster that asks for none of them: the clients have them all the same."""

SILENT = {"predicates": "none", "predicates.none.type": "TopicNameMatches", "predicates.none.pattern": "no-topic"}
STEPS = {
    "transforms": "vault,header,field",
    "transforms.vault.type": f"{leaky.__name__}.Vault",
    "transforms.vault.how": "value",
    "transforms.vault.token": mark("mapper option"),
    "transforms.header.type": "InsertHeader",
    "transforms.header.header": "authorization",
    "transforms.header.value.literal": mark("header"),
    "transforms.field.type": "InsertField$Value",
    "transforms.field.static.field": "site",
    "transforms.field.static.value": mark("static value"),
    **{f"transforms.{alias}.predicate": "none" for alias in ("vault", "header", "field")},
    **SILENT,
}
"""Transforms that are built and come to no record: what they put into records is to be found there."""

PROVIDER = {
    "s3.credentials.provider.class": f"{leaky.__name__}.Provider",
    "s3.credentials.provider.how": "never",
    "s3.credentials.provider.id": "PROVIDED",
    "s3.credentials.provider.secret": "${env:MARKED_SECRET}",
    "s3.credentials.provider.token": mark("session token"),
}
KEYED = mark("access key id")
KEY = {"aws.access.key.id": KEYED, "aws.secret.access.key": mark("secret key")}
PROXY = {"s3.proxy.user": mark("proxy user"), "s3.proxy.password": mark("proxy password")}
REGISTRY = {
    "value.converter": "AvroConverter",
    "value.converter.basic.auth.credentials.source": "USER_INFO",
    "value.converter.basic.auth.user.info": f"{mark('registry user')}:{mark('registry password')}",
}
BEARER = {
    "value.converter": "AvroConverter",
    "value.converter.bearer.auth.credentials.source": "STATIC_TOKEN",
    "value.converter.bearer.auth.token": mark("bearer"),
    "value.converter.bearer.auth.logical.cluster": "lsrc-1",
    "value.converter.bearer.auth.identity.pool.id": "pool-1",
}
ROLE = {
    "sts.role.arn": "arn:aws:iam::123456789012:role/archive",
    "sts.role.session.name": "archive",
    "sts.role.external.id": mark("external id"),
    "s3.credentials.provider.aws.access.key.id": KEYED,
    "s3.credentials.provider.aws.secret.access.key": mark("secret key of a role"),
    "aws.sts.config.endpoint": NOBODY,
}
CUSTOMER = {
    "s3.ssea.name": "AES256",
    # 32 bytes in base64, which are found in base64 as what they are
    "s3.sse.customer.key": base64.b64encode(mark("customer key").ljust(32, "x").encode()).decode(),
    "store.url": "https://127.0.0.1:1",
}
UNKNOWN = {"aws.secret.acces.key": mark("mistyped"), "consumer.override.sasl.pasword": mark("mistyped client key")}
ENVIRONMENT = {
    "MARKED_SECRET": mark("env"),
    # of Zooz's service
    "KAFKA_HOST": "kafka:9092",
    "SOURCE_KAFKA_TOPIC": "t",
    "S3_BUCKET_NAME": "bucket",
    "S3_ACCESS_KEY": mark("S3_ACCESS_KEY"),
    "S3_SECRET_KEY": mark("S3_SECRET_KEY"),
    "PLAY_SECRET_KEY": mark("PLAY_SECRET_KEY"),
    "KAFKA_S3_ALERT_WEBHOOK_URL": f"{NOBODY}/services/{mark('webhook')}",
    "KAFKA_S3_ALERT_EMAIL_TO": "somebody@example.com",
    "KAFKA_S3_ALERT_EMAIL_FROM": "archive@example.com",
    "KAFKA_S3_ALERT_SMTP_HOST": "127.0.0.1",
    "KAFKA_S3_ALERT_SMTP_PORT": "1",
    "KAFKA_S3_ALERT_SMTP_USER": "archive",
    "KAFKA_S3_ALERT_SMTP_PASSWORD": mark("smtp password"),
}
OF_THE_DEFAULT_CHAIN = {
    "AWS_ACCESS_KEY_ID": mark("AWS_ACCESS_KEY_ID"),
    "AWS_SECRET_ACCESS_KEY": mark("AWS_SECRET_ACCESS_KEY"),
    "AWS_SESSION_TOKEN": mark("AWS_SESSION_TOKEN"),
    "AWS_EC2_METADATA_DISABLED": "true",
}
OUTGOING = {**STEPS, "schema.registry.url": f"http://me:{mark('registry url of a target')}@127.0.0.1:1"}


@dataclass(frozen=True)
class World:
    """Folders of connector files, by what is wrong with each: nothing with `good`."""

    path: Path
    topic: str
    kafka: KafkaSettings
    store: StoreSettings
    url: str
    proxy_url: str

    def folder(self, name: str) -> Path:
        return self.path / name

    def write(self, name: str, connectors: Mapping[str, Mapping[str, str]], **worker: str) -> None:
        """One folder, its connectors by their names."""
        folder = self.folder(name)
        (folder / "restore").mkdir(parents=True)
        (folder / "restore" / "key-password").write_text(mark("ssl.key.password"))
        cluster = {"bootstrap.servers": self.kafka.bootstrap_servers, **WORKER, **worker}
        cluster = {name: text.replace("FOLDER", str(folder)) for name, text in cluster.items()}
        (folder / "restore" / "keystore.p12").write_bytes(_new_keystore(mark("keystore")))
        (folder / "evidence.pem").write_bytes(_new_evidence_key(mark("evidence key")))
        (folder / "worker.properties").write_text(properties(cluster))
        (folder / "restore" / "target.properties").write_text(properties(cluster))
        (folder / "restore" / "outgoing.properties").write_text(properties(OUTGOING))
        for connector, keys in connectors.items():
            own = {"name": connector, "s3.bucket.name": self.store.bucket, "s3.region": self.store.region}
            common = {"s3.part.retries": "0", "archive.start.hour": "2025-12-01T00:00", "store.url": self.url}
            late = {} if "connector.class" in keys else {"topics": self.topic, "archive.allowed.lateness.ms": "0"}
            (folder / f"{connector}.json").write_text(json.dumps({**own, **common, **late, **keys}))

    def write_all(self, gate_url: str) -> None:
        """Every folder. A store that refuses is the real one, which does not know who signs."""
        proxied = {**KEY, **PROXY, "s3.proxy.url": self.proxy_url}
        text = {"value.converter": "StringConverter", "format.class": "JsonFormat"}
        bad = {**text, **PROVIDER, "transforms": "m", "transforms.m.type": f"{leaky.__name__}.Vault"}
        bad |= {"transforms.m.how": "chain", "transforms.m.token": mark("failing mapper's option")}
        letters = {"errors.tolerance": "all", "errors.log.enable": "true", "errors.log.include.messages": "true"}
        letters |= {
            "errors.deadletterqueue.topic.name": f"{self.topic}-dead",
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
        }
        sealed = {"format.class": "JsonFormat", "value.converter": f"{leaky.__name__}.Cipher"}
        sealed |= {"value.converter.how": "chain", "value.converter.token": mark("converter's option")}
        source = {"connector.class": "io.confluent.connect.s3.source.S3SourceConnector", "topics.dir": "text"}
        source |= {"format.class": "JsonFormat", "value.converter": "JsonConverter", **proxied}
        source |= {"value.converter.schemas.enable": "false", **STEPS}
        self.write(
            "good",
            {
                "native": PROVIDER,
                "text": {**text, **proxied, **STEPS, "topics.dir": "text"},
                "letters": {**bad, **letters, "transforms.m.how": "value", "topics.dir": "letters"},
                "failing": {**bad, "topics.dir": "failing"},
                "sealed": {**PROVIDER, **sealed, **letters, "topics.dir": "sealed"},
                "source": source,
            },
        )
        self.write("broker down", {"native": PROVIDER}, **{"bootstrap.servers": "127.0.0.1:1"})
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        self.write("login refused", {"native": PROVIDER}, **login)
        real = {"store.url": self.store.endpoint_url or ""}
        self.write(
            "store refuses", {"native": {**KEY, **real}, "source": {**source, **KEY, **real, "s3.proxy.url": ""}}
        )
        self.write("store refuses the environment", {"native": real})
        self.write("proxy down", {"native": {**KEY, **PROXY, "s3.proxy.url": NOBODY}})
        self.write("role refused", {"native": ROLE})
        self.write("provider fails", {"native": {**PROVIDER, "s3.credentials.provider.how": "chain"}})
        avro = {"format.class": "AvroFormat", "value.converter.schema.registry.url": gate_url, **PROVIDER}
        in_url = gate_url.replace("//", f"//me:{mark('registry url')}@")
        self.write(
            "registry refuses",
            {
                "avro": {**avro, **REGISTRY, "topics.dir": "avro"},
                "bearer": {**avro, **BEARER, "topics.dir": "bearer"},
                "url": {
                    **avro,
                    "value.converter": "AvroConverter",
                    "value.converter.schema.registry.url": in_url,
                    "topics.dir": "url",
                },
            },
        )
        self.write("customer key", {"native": {**KEY, **CUSTOMER}})
        self.write("unknown keys", {"native": {**KEY, **UNKNOWN}}, **{"sasl.pasword": mark("mistyped key of a worker")})


def _new_keystore(password: str) -> bytes:
    issued = trustme.CA().issue_cert("me@example.com")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return pkcs12.serialize_key_and_certificates(
        b"me", key, certificate, None, BestAvailableEncryption(password.encode())
    )


def _new_evidence_key(seed: str) -> bytes:
    """A key whose 32 bytes are the text."""
    key = Ed25519PrivateKey.from_private_bytes(seed.ljust(32, "x").encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def properties(keys: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in keys.items())


@contextmanager
def store_servers(store: StoreSettings) -> Iterator[tuple[Recorder, Recorder]]:
    """A gate that lets pass who has a marked session token or key, and a proxy."""
    assert store.access_key_id is not None
    assert store.secret_access_key is not None
    sts = Sts()
    sts.sessions["PROVIDED"] = mark("session token"), NEVER
    known = store.access_key_id.get_secret_value(), store.secret_access_key.get_secret_value()
    with running(_Gate(store.endpoint_url or "", sts, known)) as gate, running(Recorder(gate.endpoint)) as proxy:
        yield gate, proxy


class _Gate(Recorder):
    """Knows also a key without a session, whose signature it does not check."""

    def answer(self, request: HttpRequest) -> HttpAnswer | None:
        if request.access_key == KEYED and "x-amz-security-token" not in request.headers and self.sts:
            request.headers["x-amz-security-token"] = self.sts.sessions["PROVIDED"][0]
            self.sts.sessions[KEYED] = self.sts.sessions["PROVIDED"]
        return super().answer(request)
