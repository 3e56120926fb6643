"""Translates the properties of Kafka's Java clients into librdkafka's, by a table of their counterparts.

A property is passed on under librdkafka's name, accepted without meaning, or refused with a reason. A property of
librdkafka alone is written by its own name.
"""

import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from kafka_s3_platform.config.keys.table import Key, KeyTable, Support, declare_refused, declare_without_meaning
from kafka_s3_platform.config.keys.values import Parser, expect_integer, expect_one_of, parse_boolean

Scope = Literal["common", "consumer", "producer", "admin"]


@dataclass(frozen=True)
class ClientProperty(Key):
    """A property passed on as `target`. `parse` makes librdkafka's text from its value."""

    scopes: frozenset[Scope] = frozenset({"common", "consumer", "producer", "admin"})
    target: str = ""
    parse: Parser[str] = str


def _expect_number(low: int, high: int) -> Parser[str]:
    def parse(text: str) -> str:
        return str(expect_integer(low, high)(text))

    return parse


def _parse_truth(text: str) -> str:
    return "true" if parse_boolean(text) else "false"


def _parse_not_empty(text: str) -> str:
    if not text:
        raise ValueError("is empty; leave the key out")
    return text


def _expect_plain(pattern: str, example: str) -> Parser[str]:
    """Parse an argument for librdkafka's command line of kinit: a shell reads it unchanged, and kinit has options."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(
                f"{text!r} is not like {example}, of letters, digits and . _ / @ - alone, as a shell reads it"
            )
        return text

    return parse


def _parse_kibibytes(text: str) -> str:
    return str(max(1, expect_integer(1, 2**41)(text) // 1024))


def _parse_socket_buffer(text: str) -> str:
    """Parse a size of a buffer. Java's -1 and librdkafka's 0 both leave it to the operating system."""
    return str(max(0, expect_integer(-1, 100_000_000)(text)))


def _parse_hostname_check(text: str) -> str:
    return expect_one_of(("none", "https"))(text or "none")


def _parse_dns_lookup(text: str) -> str:
    return expect_one_of(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"))(text)


def _parse_acks(text: str) -> str:
    if text.casefold() not in {"all", "-1"}:
        raise ValueError("a restore is acknowledged by all in-sync replicas; remove the key or say all")
    return "all"


ALL_SCOPES: frozenset[Scope] = frozenset({"common", "consumer", "producer", "admin"})
CONSUMER: frozenset[Scope] = frozenset({"consumer"})
PRODUCER: frozenset[Scope] = frozenset({"producer"})
# The largest integer of librdkafka's properties.
_MS = 2**31 - 1


def _pass_property(
    name: str, parse: Parser[str], *, scopes: frozenset[Scope] = ALL_SCOPES, target: str | None = None
) -> ClientProperty:
    doc = f"Passed to librdkafka as `{target}`." if target else "Passed to librdkafka."
    return ClientProperty(name, Support.HONOURED, doc, scopes=scopes, target=target or name, parse=parse)


SECURITY_PROPERTIES = (
    _pass_property("security.protocol", expect_one_of(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))),
    _pass_property(
        "sasl.mechanism", expect_one_of(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"))
    ),
    _pass_property("sasl.username", _parse_not_empty),
    _pass_property("sasl.password", _parse_not_empty),
    _pass_property("sasl.kerberos.service.name", _expect_plain(r"\w[\w.-]*", "kafka")),
    _pass_property("sasl.kerberos.principal", _expect_plain(r"\w[\w./@-]*", "me/host.example.com@EXAMPLE.COM")),
    # A relative path would bring the name of the working directory along.
    _pass_property("sasl.kerberos.keytab", _expect_plain(r"/[\w./@-]*", "/etc/kafka.keytab")),
    _pass_property("sasl.kerberos.min.time.before.relogin", _expect_number(0, 86_400_000)),
    _pass_property("sasl.oauthbearer.method", expect_one_of(("default", "oidc"))),
    _pass_property("sasl.oauthbearer.client.id", _parse_not_empty),
    _pass_property("sasl.oauthbearer.client.secret", _parse_not_empty),
    _pass_property("sasl.oauthbearer.client.credentials.client.id", _parse_not_empty),
    _pass_property("sasl.oauthbearer.client.credentials.client.secret", _parse_not_empty),
    _pass_property("sasl.oauthbearer.scope", _parse_not_empty),
    _pass_property("sasl.oauthbearer.extensions", _parse_not_empty),
    _pass_property("sasl.oauthbearer.token.endpoint.url", _parse_not_empty),
    _pass_property("ssl.endpoint.identification.algorithm", _parse_hostname_check),
    _pass_property("enable.ssl.certificate.verification", _parse_truth),
    _pass_property("ssl.ca.location", _parse_not_empty),
    _pass_property("ssl.ca.pem", _parse_not_empty),
    _pass_property("ssl.crl.location", _parse_not_empty),
    _pass_property("ssl.certificate.location", _parse_not_empty),
    _pass_property("ssl.certificate.pem", _parse_not_empty),
    _pass_property("ssl.key.location", _parse_not_empty),
    _pass_property("ssl.key.pem", _parse_not_empty),
    _pass_property("ssl.key.password", _parse_not_empty),
    _pass_property("ssl.truststore.certificates", _parse_not_empty, target="ssl.ca.pem"),
    _pass_property("ssl.keystore.certificate.chain", _parse_not_empty, target="ssl.certificate.pem"),
    _pass_property("ssl.keystore.key", _parse_not_empty, target="ssl.key.pem"),
)

FILE_PROPERTIES = frozenset(
    {
        *("ssl.ca.location", "ssl.crl.location", "ssl.certificate.location", "ssl.key.location"),
        *("ssl.keystore.location", "sasl.kerberos.keytab"),
    }
)
"""librdkafka's properties that name a file."""

COMMON_PROPERTIES = (
    _pass_property("client.id", _parse_not_empty),
    _pass_property("client.dns.lookup", _parse_dns_lookup),
    _pass_property("request.timeout.ms", _expect_number(10, 300_000), target="socket.timeout.ms"),
    _pass_property("socket.timeout.ms", _expect_number(10, 300_000)),
    _pass_property("socket.connection.setup.timeout.ms", _expect_number(1000, _MS)),
    _pass_property("connections.max.idle.ms", _expect_number(0, _MS)),
    _pass_property("reconnect.backoff.ms", _expect_number(0, 3_600_000)),
    _pass_property("reconnect.backoff.max.ms", _expect_number(0, 3_600_000)),
    _pass_property("retry.backoff.ms", _expect_number(1, 300_000)),
    _pass_property("retry.backoff.max.ms", _expect_number(1, 300_000)),
    _pass_property("metadata.max.age.ms", _expect_number(1, 86_400_000)),
    _pass_property("metadata.recovery.strategy", expect_one_of(("none", "rebootstrap"))),
    _pass_property("metadata.recovery.rebootstrap.trigger.ms", _expect_number(0, _MS)),
    _pass_property("send.buffer.bytes", _parse_socket_buffer, target="socket.send.buffer.bytes"),
    _pass_property("receive.buffer.bytes", _parse_socket_buffer, target="socket.receive.buffer.bytes"),
    _pass_property("socket.keepalive.enable", _parse_truth),
    _pass_property("socket.nagle.disable", _parse_truth),
    _pass_property("broker.address.family", expect_one_of(("any", "v4", "v6"))),
    _pass_property("broker.address.ttl", _expect_number(0, 86_400_000)),
    _pass_property("receive.message.max.bytes", _expect_number(1000, _MS)),
    _pass_property("log.connection.close", _parse_truth),
    _pass_property("enable.metrics.push", _parse_truth),
    _pass_property("debug", _parse_not_empty),
)

CONSUMER_PROPERTIES = (
    _pass_property("client.rack", _parse_not_empty, scopes=CONSUMER),
    _pass_property("check.crcs", _parse_truth, scopes=CONSUMER),
    _pass_property("fetch.min.bytes", _expect_number(0, _MS), scopes=CONSUMER),
    _pass_property("fetch.max.bytes", _expect_number(0, 2_147_483_135), scopes=CONSUMER),
    _pass_property("fetch.max.wait.ms", _expect_number(0, 300_000), scopes=CONSUMER, target="fetch.wait.max.ms"),
    _pass_property("fetch.wait.max.ms", _expect_number(0, 300_000), scopes=CONSUMER),
    _pass_property("max.partition.fetch.bytes", _expect_number(1, 1_000_000_000), scopes=CONSUMER),
    _pass_property("fetch.error.backoff.ms", _expect_number(0, 300_000), scopes=CONSUMER),
    _pass_property("fetch.queue.backoff.ms", _expect_number(0, 300_000), scopes=CONSUMER),
    _pass_property("queued.min.messages", _expect_number(1, 10_000_000), scopes=CONSUMER),
    _pass_property("queued.max.messages.kbytes", _expect_number(1, 2_097_151), scopes=CONSUMER),
)

PRODUCER_PROPERTIES = (
    _pass_property("acks", _parse_acks, scopes=PRODUCER),
    _pass_property("linger.ms", _expect_number(0, 900_000), scopes=PRODUCER),
    _pass_property("batch.size", _expect_number(1, _MS), scopes=PRODUCER),
    _pass_property("batch.num.messages", _expect_number(1, 1_000_000), scopes=PRODUCER),
    _pass_property("buffer.memory", _parse_kibibytes, scopes=PRODUCER, target="queue.buffering.max.kbytes"),
    _pass_property("queue.buffering.max.messages", _expect_number(0, _MS), scopes=PRODUCER),
    _pass_property("queue.buffering.max.kbytes", _expect_number(1, _MS), scopes=PRODUCER),
    _pass_property("compression.type", expect_one_of(("none", "gzip", "snappy", "lz4", "zstd")), scopes=PRODUCER),
    _pass_property("compression.level", _expect_number(-1, 12), scopes=PRODUCER),
    _pass_property(
        "max.request.size", _expect_number(1000, 1_000_000_000), scopes=PRODUCER, target="message.max.bytes"
    ),
    _pass_property("message.max.bytes", _expect_number(1000, 1_000_000_000), scopes=PRODUCER),
    # A restore needs an idempotent producer: at most 5 requests in flight, and at least one retry.
    _pass_property("max.in.flight.requests.per.connection", _expect_number(1, 5), scopes=PRODUCER),
    _pass_property("retries", _expect_number(1, _MS), scopes=PRODUCER),
    _pass_property("transaction.timeout.ms", _expect_number(1000, _MS), scopes=PRODUCER),
)

PRODUCER_REQUEST_TIMEOUT = _pass_property("request.timeout.ms", _expect_number(1, 900_000), scopes=PRODUCER)
"""The only scope in which librdkafka has a property of this name. It means the same as in Java."""


_OPENSSL = "OpenSSL does this by its own rules."
_JVM_ONLY = "Belongs to the Java client."
_NO_GROUP = "Tasks read ranges of offsets that they are given: there is no consumer group to keep alive."
_JAVA_HANDLER = "Java classes cannot run here"
_OFFSETS = "which offsets are read is decided by the index, and a lost offset is a gap, never skipped"

WITHOUT_MEANING_PROPERTIES = (
    *declare_without_meaning(
        _OPENSSL,
        "ssl.protocol",
        "ssl.provider",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
    ),
    *declare_without_meaning(
        _JVM_ONLY,
        "default.api.timeout.ms",
        "max.block.ms",
        "metadata.max.idle.ms",
        "socket.connection.setup.timeout.max.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "confluent.*",
    ),
    *declare_without_meaning(
        "`topics.regex` matches none of Kafka's own topics. `topics` may name them.", "exclude.internal.topics"
    ),
    *declare_without_meaning(
        "Keys and values are read and written as bytes.",
        "key.deserializer",
        "value.deserializer",
        "key.serializer",
        "value.serializer",
    ),
    *declare_without_meaning(
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
    *declare_without_meaning(
        "A waiting record is never given up, because later ones would overtake it. A restore fails when no record is"
        " acknowledged for two minutes.",
        "delivery.timeout.ms",
    ),
)

REFUSED_PROPERTIES = (
    declare_refused(
        "bootstrap.servers", "one cluster per folder: set bootstrap.servers in worker.properties without a prefix"
    ),
    declare_refused("isolation.level", "aborted records are never archived, which is read_committed", "read_committed"),
    declare_refused("auto.offset.reset", _OFFSETS, "earliest", "none", "error"),
    declare_refused("enable.auto.commit", "offsets are kept in the index, not in a consumer group", "false"),
    declare_refused("group.id", "offsets are kept in the index, not in a consumer group"),
    declare_refused("allow.auto.create.topics", "reading must not create topics", "false"),
    declare_refused("enable.partition.eof", "the end of a range is found by it", "true"),
    declare_refused("enable.idempotence", "a restore never writes a record twice", "true"),
    declare_refused("transactional.id", "it is derived from the restore's id"),
    declare_refused("partitioner.class", "records go to the kafka partition that they came from", ""),
    declare_refused(
        "interceptor.classes",
        _JAVA_HANDLER,
        "",
        "io.confluent.monitoring.clients.interceptor.MonitoringConsumerInterceptor",
        "io.confluent.monitoring.clients.interceptor.MonitoringProducerInterceptor",
    ),
    declare_refused("security.providers", _JAVA_HANDLER, ""),
    declare_refused("sasl.client.callback.handler.class", f"{_JAVA_HANDLER}; set sasl.oauthbearer.method to oidc", ""),
    declare_refused("sasl.login.callback.handler.class", f"{_JAVA_HANDLER}; set sasl.oauthbearer.method to oidc", ""),
    declare_refused("sasl.login.class", _JAVA_HANDLER, ""),
    declare_refused("sasl.kerberos.kinit.cmd", "librdkafka runs a command line of its own; set sasl.kerberos.keytab"),
    declare_refused("ssl.engine.factory.class", _JAVA_HANDLER, ""),
    declare_refused("ssl.cipher.suites", "Java's cipher names are not OpenSSL's", ""),
    declare_refused(
        "ssl.enabled.protocols",
        "OpenSSL negotiates TLSv1.3 or TLSv1.2, and cannot be held to the newer one; say TLSv1.2,TLSv1.3",
        "",
        "TLSv1.2",
        "TLSv1.2,TLSv1.3",
        "TLSv1.3,TLSv1.2",
    ),
)

TRUSTSTORE = "A truststore of type PEM becomes `ssl.ca.location`. JKS and PKCS12 are refused, and so is a password."
KEYSTORE = (
    "A keystore of type PEM becomes `ssl.certificate.location` and `ssl.key.location`. One of type PKCS12 stays a"
    " keystore. JKS is refused."
)


def _pair_property(name: str, doc: str, default: str | None = None) -> Key:
    return Key(name, Support.HONOURED, doc, default)


PAIRED_PROPERTIES = (
    _pair_property(
        "sasl.jaas.config",
        "`PlainLoginModule` or `ScramLoginModule`. It becomes `sasl.username` and `sasl.password`.",
    ),
    _pair_property("ssl.truststore.location", TRUSTSTORE),
    _pair_property("ssl.truststore.type", TRUSTSTORE, "JKS"),
    _pair_property("ssl.truststore.password", TRUSTSTORE),
    _pair_property("ssl.keystore.location", KEYSTORE),
    _pair_property("ssl.keystore.type", KEYSTORE, "JKS"),
    _pair_property("ssl.keystore.password", KEYSTORE),
)
"""Properties that are read together, or that become several properties of librdkafka."""

PAIRED_DOCS = {key.name: key.doc for key in PAIRED_PROPERTIES}

CLIENT_PROPERTIES = (*SECURITY_PROPERTIES, *COMMON_PROPERTIES, *CONSUMER_PROPERTIES, *PRODUCER_PROPERTIES)
CLIENT_KEYS = KeyTable(
    (
        *CLIENT_PROPERTIES,
        *WITHOUT_MEANING_PROPERTIES,
        *REFUSED_PROPERTIES,
        *PAIRED_PROPERTIES,
    )
)


T = TypeVar("T")

JAAS_MODULES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
}
_PEM = "librdkafka reads no Java truststore; set ssl.ca.location to the CA certificates as PEM"


@dataclass
class ClientOutcome:
    """The librdkafka properties of one scope, and the outcome for each property of the file.

    The values of `unknown` ones may be secret.
    """

    properties: dict[str, str] = field(default_factory=dict, repr=False)
    honoured: dict[str, str] = field(default_factory=dict)
    without_meaning: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def only(self, names: Collection[str]) -> "ClientOutcome":
        """Return the outcome for these properties alone."""
        honoured, ignored, refused = ({n: why for n, why in reasons.items() if n in names} for reasons in self._judged)
        return ClientOutcome(self.properties, honoured, ignored, refused, self.unknown)

    def missing(self, names: Collection[str]) -> "ClientOutcome":
        """Return the refusals of required properties not in `names`, the ones set by the file."""
        return ClientOutcome(refused={n: why for n, why in self.refused.items() if n not in names})

    @property
    def _judged(self) -> tuple[dict[str, str], ...]:
        return self.honoured, self.without_meaning, self.refused


def translate_properties(entries: Mapping[str, str], scope: Scope) -> ClientOutcome:
    """Translate the properties of one scope. `common` has the properties of every client, without prefix.

    Relative paths become absolute: a task may run in another directory, or in a renamed one.
    """
    outcome = ClientOutcome()
    for name, value in entries.items():
        if name not in PAIRED_DOCS:
            _translate_property(outcome, name, value, scope)
    together = {name: value for name, value in entries.items() if name in PAIRED_DOCS}
    _translate_truststore(outcome, together)
    _translate_keystore(outcome, together)
    _translate_jaas(outcome, together)
    for name in FILE_PROPERTIES & outcome.properties.keys():
        # librdkafka's own word for the places where systems keep authorities
        if outcome.properties[name] not in {"", "probe"}:
            outcome.properties[name] = os.path.abspath(outcome.properties[name])  # noqa: PTH100 - no link is resolved
    return outcome


def select_security(properties: Mapping[str, T]) -> dict[str, T]:
    """Return the librdkafka properties for connections, without those for reads and writes."""
    return {
        name: value
        for name, value in properties.items()
        if name.startswith(("security.", "sasl.", "ssl.", "enable.ssl."))
    }


def _translate_property(outcome: ClientOutcome, name: str, value: str, scope: Scope) -> None:
    key = PRODUCER_REQUEST_TIMEOUT if (name, scope) == ("request.timeout.ms", "producer") else CLIENT_KEYS.find(name)
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
        _set_properties(outcome, {key.target: key.parse(value)})
    except ValueError as err:
        outcome.refused[name] = str(err)
    else:
        outcome.honoured[name] = key.doc


def _set_properties(outcome: ClientOutcome, properties: Mapping[str, str]) -> None:
    """Set properties. If one of them is set already, raise ValueError and set none."""
    if twice := [name for name in properties if name in outcome.properties]:
        raise ValueError(f"another property sets librdkafka's {' and '.join(twice)} too; keep one")
    outcome.properties.update(properties)


def _set_together(outcome: ClientOutcome, names: Iterable[str], doc: str, properties: Mapping[str, str]) -> None:
    """Set the result of properties read together. If one of it is set already, refuse them all."""
    try:
        _set_properties(outcome, properties)
    except ValueError as err:
        outcome.refused.update(dict.fromkeys(names, str(err)))
    else:
        outcome.honoured.update(dict.fromkeys(names, doc))


def _translate_truststore(outcome: ClientOutcome, entries: Mapping[str, str]) -> None:
    kind = entries.get("ssl.truststore.type", "JKS").upper()
    names = [name for name in entries if name.startswith("ssl.truststore.")]
    if kind != "PEM" or "ssl.truststore.password" in names:
        outcome.refused.update(dict.fromkeys(names, _PEM))
        return
    location = entries.get("ssl.truststore.location")
    _set_together(outcome, names, TRUSTSTORE, {"ssl.ca.location": location} if location else {})


def _translate_keystore(outcome: ClientOutcome, entries: Mapping[str, str]) -> None:
    kind = entries.get("ssl.keystore.type", "JKS").upper()
    names = [name for name in entries if name.startswith("ssl.keystore.")]
    location = entries.get("ssl.keystore.location")
    if kind == "PEM" and "ssl.keystore.password" not in names:
        both = {"ssl.certificate.location": location, "ssl.key.location": location} if location else {}
        _set_together(outcome, names, KEYSTORE, both)
    elif kind == "PKCS12":
        _set_together(outcome, names, KEYSTORE, {n: entries[n] for n in names if n != "ssl.keystore.type"})
    else:
        reason = (
            "librdkafka reads no JKS keystore; set ssl.keystore.type to PKCS12,"
            " or to PEM with ssl.key.password instead of ssl.keystore.password"
        )
        outcome.refused.update(dict.fromkeys(names, reason))


def _translate_jaas(outcome: ClientOutcome, entries: Mapping[str, str]) -> None:
    name = "sasl.jaas.config"
    if name not in entries:
        return
    try:
        _set_properties(outcome, _parse_login(entries[name]))
    except ValueError as err:
        outcome.refused[name] = str(err)
    else:
        outcome.honoured[name] = PAIRED_DOCS[name]


def _parse_login(text: str) -> dict[str, str]:
    """Return user name and password of a JAAS entry. No error may quote the entry: it holds the password."""
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
    # The options follow the module and its flag, such as `required`.
    options = dict(_parse_login_option(word, shape) for word in words[2:])
    if options.keys() - {"username", "password"}:
        raise ValueError(f"has an option besides username and password, which nothing here reads; {shape}")
    if not options.get("username") or not options.get("password"):
        raise ValueError(f"names no username or no password; {shape}")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _parse_login_option(word: str, shape: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"an option has no value; {shape}")
    return name, value
