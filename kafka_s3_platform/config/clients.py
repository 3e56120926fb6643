"""Properties of Kafka's Java clients as those of librdkafka.

A curated table: a property is passed on under librdkafka's name, accepted without meaning, or refused with its reason.
What only librdkafka has may be written under its own name.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from kafka_s3_platform.config.table import Key, KeyTable, Support, refused, without_meaning
from kafka_s3_platform.config.values import Parser, boolean, choice, integer

T = TypeVar("T")
Scope = Literal["common", "consumer", "producer", "admin"]


@dataclass(frozen=True)
class ClientProperty(Key):
    """A property that is passed on as `target`, parsed by `parse` to librdkafka's text."""

    scopes: frozenset[Scope] = frozenset({"common", "consumer", "producer", "admin"})
    target: str = ""
    parse: Parser[str] = str


@dataclass
class ClientOutcome:
    """librdkafka properties of one scope, and what became of each property as it was written.

    Of `unknown` ones nobody knows whether they are secret.
    """

    properties: dict[str, str] = field(default_factory=dict, repr=False)
    honoured: dict[str, str] = field(default_factory=dict)
    without_meaning: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def only(self, names: Collection[str]) -> "ClientOutcome":
        """What became of some of the properties."""
        honoured, ignored, refused = ({n: why for n, why in found.items() if n in names} for found in self._judged)
        return ClientOutcome(self.properties, honoured, ignored, refused, self.unknown)

    def missing(self, names: Collection[str]) -> "ClientOutcome":
        """What is refused because it is not among the properties that were given."""
        return ClientOutcome(refused={n: why for n, why in self.refused.items() if n not in names})

    @property
    def _judged(self) -> tuple[dict[str, str], ...]:
        return self.honoured, self.without_meaning, self.refused


def _number(low: int, high: int) -> Parser[str]:
    def parse(text: str) -> str:
        return str(integer(low, high)(text))

    return parse


def _truth(text: str) -> str:
    return "true" if boolean(text) else "false"


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("is empty; leave the key out")
    return text


def _kibibytes(text: str) -> str:
    return str(max(1, integer(1, 2**41)(text) // 1024))


def _socket_buffer(text: str) -> str:
    """Java's -1 and librdkafka's 0 both leave the size to the operating system."""
    return str(max(0, integer(-1, 100_000_000)(text)))


def _hostname_check(text: str) -> str:
    return choice(("none", "https"))(text or "none")


def _dns_lookup(text: str) -> str:
    return choice(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"))(text)


def _all_acks(text: str) -> str:
    if text.casefold() not in {"all", "-1"}:
        raise ValueError("a restore is acknowledged by all in-sync replicas; remove the key or say all")
    return "all"


ALL_SCOPES: frozenset[Scope] = frozenset({"common", "consumer", "producer", "admin"})
CONSUMER: frozenset[Scope] = frozenset({"consumer"})
PRODUCER: frozenset[Scope] = frozenset({"producer"})
_MS = 2**31 - 1


def _passed(
    name: str, parse: Parser[str], *, scopes: frozenset[Scope] = ALL_SCOPES, target: str | None = None
) -> ClientProperty:
    doc = f"Passed to librdkafka as `{target}`." if target else "Passed to librdkafka."
    return ClientProperty(name, Support.HONOURED, doc, scopes=scopes, target=target or name, parse=parse)


SECURITY_PROPERTIES = (
    _passed("security.protocol", choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))),
    _passed("sasl.mechanism", choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"))),
    _passed("sasl.username", _not_empty),
    _passed("sasl.password", _not_empty),
    _passed("sasl.kerberos.service.name", _not_empty),
    _passed("sasl.kerberos.principal", _not_empty),
    _passed("sasl.kerberos.keytab", _not_empty),
    _passed("sasl.kerberos.min.time.before.relogin", _number(0, 86_400_000)),
    _passed("sasl.oauthbearer.method", choice(("default", "oidc"))),
    _passed("sasl.oauthbearer.client.id", _not_empty),
    _passed("sasl.oauthbearer.client.secret", _not_empty),
    _passed("sasl.oauthbearer.client.credentials.client.id", _not_empty),
    _passed("sasl.oauthbearer.client.credentials.client.secret", _not_empty),
    _passed("sasl.oauthbearer.scope", _not_empty),
    _passed("sasl.oauthbearer.extensions", _not_empty),
    _passed("sasl.oauthbearer.token.endpoint.url", _not_empty),
    _passed("ssl.endpoint.identification.algorithm", _hostname_check),
    _passed("enable.ssl.certificate.verification", _truth),
    _passed("ssl.ca.location", _not_empty),
    _passed("ssl.ca.pem", _not_empty),
    _passed("ssl.crl.location", _not_empty),
    _passed("ssl.certificate.location", _not_empty),
    _passed("ssl.certificate.pem", _not_empty),
    _passed("ssl.key.location", _not_empty),
    _passed("ssl.key.pem", _not_empty),
    _passed("ssl.key.password", _not_empty),
    _passed("ssl.truststore.certificates", _not_empty, target="ssl.ca.pem"),
    _passed("ssl.keystore.certificate.chain", _not_empty, target="ssl.certificate.pem"),
    _passed("ssl.keystore.key", _not_empty, target="ssl.key.pem"),
)

COMMON_PROPERTIES = (
    _passed("client.id", _not_empty),
    _passed("client.dns.lookup", _dns_lookup),
    _passed("request.timeout.ms", _number(10, 300_000), target="socket.timeout.ms"),
    _passed("socket.timeout.ms", _number(10, 300_000)),
    _passed("socket.connection.setup.timeout.ms", _number(1000, _MS)),
    _passed("connections.max.idle.ms", _number(0, _MS)),
    _passed("reconnect.backoff.ms", _number(0, 3_600_000)),
    _passed("reconnect.backoff.max.ms", _number(0, 3_600_000)),
    _passed("retry.backoff.ms", _number(1, 300_000)),
    _passed("retry.backoff.max.ms", _number(1, 300_000)),
    _passed("metadata.max.age.ms", _number(1, 86_400_000)),
    _passed("metadata.recovery.strategy", choice(("none", "rebootstrap"))),
    _passed("metadata.recovery.rebootstrap.trigger.ms", _number(0, _MS)),
    _passed("send.buffer.bytes", _socket_buffer, target="socket.send.buffer.bytes"),
    _passed("receive.buffer.bytes", _socket_buffer, target="socket.receive.buffer.bytes"),
    _passed("socket.keepalive.enable", _truth),
    _passed("socket.nagle.disable", _truth),
    _passed("broker.address.family", choice(("any", "v4", "v6"))),
    _passed("broker.address.ttl", _number(0, 86_400_000)),
    _passed("receive.message.max.bytes", _number(1000, _MS)),
    _passed("log.connection.close", _truth),
    _passed("enable.metrics.push", _truth),
    _passed("debug", _not_empty),
)

CONSUMER_PROPERTIES = (
    _passed("client.rack", _not_empty, scopes=CONSUMER),
    _passed("check.crcs", _truth, scopes=CONSUMER),
    _passed("fetch.min.bytes", _number(0, _MS), scopes=CONSUMER),
    _passed("fetch.max.bytes", _number(0, 2_147_483_135), scopes=CONSUMER),
    _passed("fetch.max.wait.ms", _number(0, 300_000), scopes=CONSUMER, target="fetch.wait.max.ms"),
    _passed("fetch.wait.max.ms", _number(0, 300_000), scopes=CONSUMER),
    _passed("max.partition.fetch.bytes", _number(1, 1_000_000_000), scopes=CONSUMER),
    _passed("fetch.error.backoff.ms", _number(0, 300_000), scopes=CONSUMER),
    _passed("fetch.queue.backoff.ms", _number(0, 300_000), scopes=CONSUMER),
    _passed("queued.min.messages", _number(1, 10_000_000), scopes=CONSUMER),
    _passed("queued.max.messages.kbytes", _number(1, 2_097_151), scopes=CONSUMER),
)

PRODUCER_PROPERTIES = (
    _passed("acks", _all_acks, scopes=PRODUCER),
    _passed("linger.ms", _number(0, 900_000), scopes=PRODUCER),
    _passed("batch.size", _number(1, _MS), scopes=PRODUCER),
    _passed("batch.num.messages", _number(1, 1_000_000), scopes=PRODUCER),
    _passed("buffer.memory", _kibibytes, scopes=PRODUCER, target="queue.buffering.max.kbytes"),
    _passed("queue.buffering.max.messages", _number(0, _MS), scopes=PRODUCER),
    _passed("queue.buffering.max.kbytes", _number(1, _MS), scopes=PRODUCER),
    _passed("compression.type", choice(("none", "gzip", "snappy", "lz4", "zstd")), scopes=PRODUCER),
    _passed("compression.level", _number(-1, 12), scopes=PRODUCER),
    _passed("max.request.size", _number(1000, 1_000_000_000), scopes=PRODUCER, target="message.max.bytes"),
    _passed("message.max.bytes", _number(1000, 1_000_000_000), scopes=PRODUCER),
    _passed("max.in.flight.requests.per.connection", _number(1, 5), scopes=PRODUCER),
    _passed("retries", _number(1, _MS), scopes=PRODUCER),
    _passed("transaction.timeout.ms", _number(1000, _MS), scopes=PRODUCER),
)

_PRODUCER_REQUEST_TIMEOUT = _passed("request.timeout.ms", _number(1, 900_000), scopes=PRODUCER)
"""Of a producer, librdkafka has a property of that name, with Java's meaning."""


_OPENSSL = "OpenSSL does this by its own rules."
_JVM_ONLY = "Belongs to the Java client."
_NO_GROUP = "Ranges are assigned, not subscribed: there is no consumer group to keep alive."
_PEM = "librdkafka reads no Java truststore; set ssl.ca.location to the CA certificates as PEM"
_JAVA_HANDLER = "Java classes cannot run here"
_OFFSETS = "which offsets are read is decided by the index, and a lost offset is a gap, never skipped"

WITHOUT_MEANING_PROPERTIES = (
    *without_meaning(
        _OPENSSL,
        "ssl.protocol",
        "ssl.provider",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
    ),
    *without_meaning(
        _JVM_ONLY,
        "default.api.timeout.ms",
        "max.block.ms",
        "metadata.max.idle.ms",
        "socket.connection.setup.timeout.max.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "exclude.internal.topics",
        "confluent.*",
    ),
    *without_meaning(
        "Keys and values are read and written as bytes.",
        "key.deserializer",
        "value.deserializer",
        "key.serializer",
        "value.serializer",
    ),
    *without_meaning(
        _NO_GROUP,
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "rebalance.timeout.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "auto.commit.interval.ms",
        "partition.assignment.strategy",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
    ),
    *without_meaning(
        "A record that waits is never given up, or later ones would overtake it; a restore fails when nothing is"
        " acknowledged for two minutes.",
        "delivery.timeout.ms",
    ),
)

REFUSED_PROPERTIES = (
    refused("bootstrap.servers", "one cluster per folder: set bootstrap.servers in worker.properties without a prefix"),
    refused("isolation.level", "aborted records are never archived, which is read_committed", "read_committed"),
    refused("auto.offset.reset", _OFFSETS, "earliest", "none", "error"),
    refused("enable.auto.commit", "offsets are kept in the index, not in a consumer group", "false"),
    refused("group.id", "offsets are kept in the index, not in a consumer group"),
    refused("allow.auto.create.topics", "reading must not create topics", "false"),
    refused("enable.partition.eof", "the end of a range is found by it", "true"),
    refused("enable.idempotence", "a restore never writes a record twice", "true"),
    refused("transactional.id", "it is derived from the restore's id"),
    refused("partitioner.class", "records go to the kafka partition that they came from", ""),
    refused(
        "interceptor.classes",
        _JAVA_HANDLER,
        "",
        "io.confluent.monitoring.clients.interceptor.MonitoringConsumerInterceptor",
        "io.confluent.monitoring.clients.interceptor.MonitoringProducerInterceptor",
    ),
    refused("security.providers", _JAVA_HANDLER, ""),
    refused("sasl.client.callback.handler.class", f"{_JAVA_HANDLER}; set sasl.oauthbearer.method to oidc", ""),
    refused("sasl.login.callback.handler.class", f"{_JAVA_HANDLER}; set sasl.oauthbearer.method to oidc", ""),
    refused("sasl.login.class", _JAVA_HANDLER, ""),
    refused("sasl.kerberos.kinit.cmd", "librdkafka runs a command line of its own; set sasl.kerberos.keytab"),
    refused("ssl.engine.factory.class", _JAVA_HANDLER, ""),
    refused("ssl.cipher.suites", "Java's cipher names are not OpenSSL's", ""),
    refused(
        "ssl.enabled.protocols",
        "OpenSSL negotiates TLSv1.2 or TLSv1.3",
        "",
        "TLSv1.2",
        "TLSv1.3",
        "TLSv1.2,TLSv1.3",
        "TLSv1.3,TLSv1.2",
    ),
)

_TRUSTSTORE = "A truststore of type PEM becomes `ssl.ca.location`; JKS and PKCS12 are refused, as is a password."
_KEYSTORE = (
    "A keystore of type PEM becomes `ssl.certificate.location` and `ssl.key.location`, one of type PKCS12 stays one;"
    " JKS is refused."
)


def _paired(name: str, doc: str, default: str | None = None) -> Key:
    return Key(name, Support.HONOURED, doc, default)


PAIRED_PROPERTIES = (
    _paired(
        "sasl.jaas.config",
        "`PlainLoginModule` or `ScramLoginModule`: becomes `sasl.username` and `sasl.password`.",
    ),
    _paired("ssl.truststore.location", _TRUSTSTORE),
    _paired("ssl.truststore.type", _TRUSTSTORE, "JKS"),
    _paired("ssl.truststore.password", _TRUSTSTORE),
    _paired("ssl.keystore.location", _KEYSTORE),
    _paired("ssl.keystore.type", _KEYSTORE, "JKS"),
    _paired("ssl.keystore.password", _KEYSTORE),
)
"""Properties that are read together, or that become several of librdkafka's."""

_PAIRED = {key.name: key.doc for key in PAIRED_PROPERTIES}

JAAS_MODULES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
}

CLIENT_PROPERTIES = (*SECURITY_PROPERTIES, *COMMON_PROPERTIES, *CONSUMER_PROPERTIES, *PRODUCER_PROPERTIES)
CLIENT_KEYS = KeyTable(
    (
        *CLIENT_PROPERTIES,
        *WITHOUT_MEANING_PROPERTIES,
        *REFUSED_PROPERTIES,
        *PAIRED_PROPERTIES,
    )
)


def client_properties(entries: Mapping[str, str], scope: Scope) -> ClientOutcome:
    """Translates the properties of one scope: `common` are those of every client, written without a prefix."""
    outcome = ClientOutcome()
    for name, value in entries.items():
        if name not in _PAIRED:
            _translate(outcome, name, value, scope)
    together = {name: value for name, value in entries.items() if name in _PAIRED}
    _truststore(outcome, together)
    _keystore(outcome, together)
    _jaas(outcome, together)
    return outcome


def security_of(properties: Mapping[str, T]) -> dict[str, T]:
    """The librdkafka properties that say how to connect, without those that say how to read or write."""
    return {
        name: value
        for name, value in properties.items()
        if name.startswith(("security.", "sasl.", "ssl.", "enable.ssl."))
    }


def _translate(outcome: ClientOutcome, name: str, value: str, scope: Scope) -> None:
    key = _PRODUCER_REQUEST_TIMEOUT if (name, scope) == ("request.timeout.ms", "producer") else CLIENT_KEYS.find(name)
    if key is None or key.is_family:
        outcome.unknown.add(name)
    if key is None:
        near = CLIENT_KEYS.nearest(name)
        outcome.refused[name] = "unknown client property" + (f"; did you mean {near}?" if near else "")
    elif isinstance(key, ClientProperty):
        _pass_on(outcome, key, value, scope, name)
    elif key.support is Support.WITHOUT_MEANING or key.is_neutral(value):
        outcome.without_meaning[name] = key.doc
    else:
        outcome.refused[name] = key.doc


def _pass_on(outcome: ClientOutcome, key: ClientProperty, value: str, scope: Scope, name: str) -> None:
    if scope not in key.scopes:
        outcome.refused[name] = f"is a property of the {' and the '.join(key.scopes)} only, which is its prefix"
        return
    try:
        _set(outcome, {key.target: key.parse(value)})
    except ValueError as err:
        outcome.refused[name] = str(err)
    else:
        outcome.honoured[name] = key.doc


def _set(outcome: ClientOutcome, properties: Mapping[str, str]) -> None:
    """ValueError where one of them is set already; none is set then."""
    if twice := [name for name in properties if name in outcome.properties]:
        raise ValueError(f"another property sets librdkafka's {' and '.join(twice)} too; keep one")
    outcome.properties.update(properties)


def _set_together(outcome: ClientOutcome, names: Iterable[str], doc: str, properties: Mapping[str, str]) -> None:
    """Sets what properties that are read together come to; all of them are refused where one is set already."""
    try:
        _set(outcome, properties)
    except ValueError as err:
        outcome.refused.update(dict.fromkeys(names, str(err)))
    else:
        outcome.honoured.update(dict.fromkeys(names, doc))


def _truststore(outcome: ClientOutcome, entries: Mapping[str, str]) -> None:
    kind = entries.get("ssl.truststore.type", "JKS").upper()
    given = [name for name in entries if name.startswith("ssl.truststore.")]
    if kind != "PEM" or "ssl.truststore.password" in given:
        outcome.refused.update(dict.fromkeys(given, _PEM))
        return
    location = entries.get("ssl.truststore.location")
    _set_together(outcome, given, _TRUSTSTORE, {"ssl.ca.location": location} if location else {})


def _keystore(outcome: ClientOutcome, entries: Mapping[str, str]) -> None:
    kind = entries.get("ssl.keystore.type", "JKS").upper()
    given = [name for name in entries if name.startswith("ssl.keystore.")]
    location = entries.get("ssl.keystore.location")
    if kind == "PEM" and "ssl.keystore.password" not in given:
        both = {"ssl.certificate.location": location, "ssl.key.location": location} if location else {}
        _set_together(outcome, given, _KEYSTORE, both)
    elif kind == "PKCS12":
        _set_together(outcome, given, _KEYSTORE, {n: entries[n] for n in given if n != "ssl.keystore.type"})
    else:
        reason = (
            "librdkafka reads no JKS keystore; set ssl.keystore.type to PKCS12,"
            " or to PEM with ssl.key.password instead of ssl.keystore.password"
        )
        outcome.refused.update(dict.fromkeys(given, reason))


def _jaas(outcome: ClientOutcome, entries: Mapping[str, str]) -> None:
    name = "sasl.jaas.config"
    if name not in entries:
        return
    try:
        _set(outcome, _login(entries[name]))
    except ValueError as err:
        outcome.refused[name] = str(err)
    else:
        outcome.honoured[name] = _PAIRED[name]


def _login(text: str) -> dict[str, str]:
    """User name and password of a JAAS entry. No error quotes it: it holds the password."""
    shape = 'write it as <module> required username="..." password="...";'
    try:
        words = shlex.split(text.strip().removesuffix(";"))
    except ValueError:
        raise ValueError(f"a quote is not closed; {shape}") from None
    if not words or words[0] not in JAAS_MODULES:
        raise ValueError(
            f"only {' and '.join(name.rpartition('.')[2] for name in JAAS_MODULES)} are read;"
            " for others set librdkafka's sasl.kerberos.* or sasl.oauthbearer.* properties"
        )
    options = dict(_option(word, shape) for word in words[2:])
    if options.keys() - {"username", "password"}:
        raise ValueError(f"has an option besides username and password, which nothing here reads; {shape}")
    if not options.get("username") or not options.get("password"):
        raise ValueError(f"names no username or no password; {shape}")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _option(word: str, shape: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"an option has no value; {shape}")
    return name, value
