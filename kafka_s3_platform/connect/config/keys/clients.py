"""Translates the properties of Kafka's Java clients into librdkafka's, by a table of their counterparts.

A property is passed on under librdkafka's name, accepted without meaning, or refused with a reason. A property of
librdkafka alone is written by its own name. librdkafka judges the values that it is passed.
"""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeVar

from kafka_s3_platform.connect.config.keys.table import (
    Key,
    KeyTable,
    Support,
    declare_honoured,
    declare_refused,
    declare_without_meaning,
)
from kafka_s3_platform.connect.config.keys.values import (
    Parser,
    expect_integer,
    expect_match,
    expect_one_of,
    parse_boolean,
)

T = TypeVar("T")
Scope = Literal["common", "consumer", "producer", "admin"]
ALL_SCOPES: frozenset[Scope] = frozenset({"common", "consumer", "producer", "admin"})


@dataclass(frozen=True)
class ClientProperty(Key):
    """A property passed on as `target`. `parse` makes the text that means the same to librdkafka as to Java."""

    scopes: frozenset[Scope] = ALL_SCOPES
    target: str = ""
    parse: Parser[str] = str


def _pass_on(parse: Parser[str], names: str, *scopes: Scope) -> tuple[ClientProperty, ...]:
    """Declare properties of these clients, or of all. One of Java's is followed by `=` and librdkafka's name."""

    def declare(name: str, target: str) -> ClientProperty:
        doc = f"Passed to librdkafka as `{target}`." if target else "Passed to librdkafka."
        allowed = frozenset(scopes) or ALL_SCOPES
        return ClientProperty(name, Support.HONOURED, doc, scopes=allowed, target=target or name, parse=parse)

    return tuple(declare(name, target) for name, _, target in (pair.partition("=") for pair in names.split()))


def _parse_text(text: str) -> str:
    if not text:
        raise ValueError("is empty; leave the key out")
    return text


def _parse_path(text: str) -> str:
    """Make a path absolute: a task may run in another directory, or in a renamed one."""
    # librdkafka's own word for the places where systems keep authorities
    return text if text == "probe" else os.path.abspath(_parse_text(text))  # noqa: PTH100 - no link is resolved


def _expect_number(low: int = -(2**63), high: int = 2**63 - 1) -> Parser[str]:
    """Return a parser of decimal numbers: librdkafka takes 1e3 for 1, and 010 for 8."""
    return lambda text: str(expect_integer(low, high)(text))


def _parse_truth(text: str) -> str:
    return "true" if parse_boolean(text) else "false"


def _parse_kibibytes(text: str) -> str:
    return str(max(1, expect_integer(1)(text) // 1024))


def _parse_acks(text: str) -> str:
    if text.casefold() not in {"all", "-1"}:
        raise ValueError("a restore is acknowledged by all in-sync replicas; remove the key or say all")
    return "all"


# librdkafka writes these arguments into a command line of kinit, which has options.
_PLAIN = ", of letters, digits and . _ / @ - alone, as a shell reads it"

CLIENT_PROPERTIES = (
    *_pass_on(_parse_text, "security.protocol"),
    *_pass_on(expect_one_of(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER")), "sasl.mechanism"),
    *_pass_on(_parse_text, "sasl.username sasl.password"),
    *_pass_on(expect_match(r"\w[\w.-]*", f"name such as kafka{_PLAIN}"), "sasl.kerberos.service.name"),
    *_pass_on(
        expect_match(r"\w[\w./@-]*", f"principal such as me/host.example.com@EXAMPLE.COM{_PLAIN}"),
        "sasl.kerberos.principal",
    ),
    # A relative path would bring the name of the working directory along.
    *_pass_on(expect_match(r"/[\w./@-]*", f"path such as /etc/kafka.keytab{_PLAIN}"), "sasl.kerberos.keytab"),
    *_pass_on(_expect_number(), "sasl.kerberos.min.time.before.relogin"),
    *_pass_on(str.casefold, "sasl.oauthbearer.method"),
    *_pass_on(
        _parse_text,
        """sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.scope sasl.oauthbearer.extensions
        sasl.oauthbearer.token.endpoint.url""",
    ),
    # Java's empty value, and librdkafka's none
    *_pass_on(lambda text: text.casefold() or "none", "ssl.endpoint.identification.algorithm"),
    *_pass_on(_parse_truth, "enable.ssl.certificate.verification"),
    *_pass_on(_parse_path, "ssl.ca.location ssl.crl.location ssl.certificate.location ssl.key.location"),
    *_pass_on(
        _parse_text,
        """ssl.ca.pem ssl.certificate.pem ssl.key.pem ssl.key.password ssl.truststore.certificates=ssl.ca.pem
        ssl.keystore.certificate.chain=ssl.certificate.pem ssl.keystore.key=ssl.key.pem""",
    ),
    *_pass_on(_parse_text, "client.id"),
    *_pass_on(str.casefold, "client.dns.lookup metadata.recovery.strategy broker.address.family"),
    *_pass_on(
        _expect_number(),
        """request.timeout.ms=socket.timeout.ms socket.timeout.ms socket.connection.setup.timeout.ms
        connections.max.idle.ms reconnect.backoff.ms reconnect.backoff.max.ms retry.backoff.ms retry.backoff.max.ms
        metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms broker.address.ttl receive.message.max.bytes""",
    ),
    # -1 in Java, and 0 in librdkafka, leave the size of a buffer to the operating system.
    *_pass_on(
        lambda text: "0" if text == "-1" else _expect_number()(text),
        "send.buffer.bytes=socket.send.buffer.bytes receive.buffer.bytes=socket.receive.buffer.bytes",
    ),
    *_pass_on(_parse_truth, "socket.keepalive.enable socket.nagle.disable log.connection.close enable.metrics.push"),
    *_pass_on(_parse_text, "debug"),
    *_pass_on(_parse_text, "client.rack", "consumer"),
    *_pass_on(_parse_truth, "check.crcs", "consumer"),
    *_pass_on(
        _expect_number(),
        """fetch.min.bytes fetch.max.bytes fetch.max.wait.ms=fetch.wait.max.ms fetch.wait.max.ms
        max.partition.fetch.bytes fetch.error.backoff.ms fetch.queue.backoff.ms queued.min.messages
        queued.max.messages.kbytes""",
        "consumer",
    ),
    *_pass_on(_parse_acks, "acks", "producer"),
    *_pass_on(
        _expect_number(),
        """linger.ms batch.size batch.num.messages queue.buffering.max.messages queue.buffering.max.kbytes
        compression.level max.request.size=message.max.bytes message.max.bytes transaction.timeout.ms""",
        "producer",
    ),
    *_pass_on(_parse_kibibytes, "buffer.memory=queue.buffering.max.kbytes", "producer"),
    *_pass_on(str.casefold, "compression.type", "producer"),
    # A restore needs an idempotent producer: at most 5 requests in flight, and at least one retry.
    *_pass_on(_expect_number(1, 5), "max.in.flight.requests.per.connection", "producer"),
    *_pass_on(_expect_number(1), "retries", "producer"),
)

[PRODUCER_REQUEST_TIMEOUT] = _pass_on(_expect_number(), "request.timeout.ms", "producer")
"""The only scope in which librdkafka has a property of this name. It means the same as in Java."""

WITHOUT_MEANING_PROPERTIES = (
    *declare_without_meaning(
        "OpenSSL does this by its own rules.",
        """ssl.protocol ssl.provider ssl.keymanager.algorithm ssl.trustmanager.algorithm
        ssl.secure.random.implementation""",
    ),
    *declare_without_meaning(
        "Belongs to the Java client.",
        """default.api.timeout.ms max.block.ms metadata.max.idle.ms socket.connection.setup.timeout.max.ms
        metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms confluent.*""",
    ),
    *declare_without_meaning(
        "`topics.regex` matches none of Kafka's own topics. `topics` may name them.", "exclude.internal.topics"
    ),
    *declare_without_meaning(
        "Keys and values are read and written as bytes.",
        "key.deserializer value.deserializer key.serializer value.serializer",
    ),
    *declare_without_meaning(
        "Tasks read ranges of offsets that they are given: there is no consumer group to keep alive.",
        """session.timeout.ms heartbeat.interval.ms rebalance.timeout.ms max.poll.interval.ms max.poll.records
        auto.commit.interval.ms partition.assignment.strategy group.instance.id group.protocol
        group.remote.assignor""",
    ),
    *declare_without_meaning(
        "A waiting record is never given up, because later ones would overtake it. A restore fails when no record is"
        " acknowledged for two minutes.",
        "delivery.timeout.ms",
    ),
)

_JAVA_HANDLER = "Java classes cannot run here"

REFUSED_PROPERTIES = (
    declare_refused(
        "bootstrap.servers", "one cluster per folder: set bootstrap.servers in worker.properties without a prefix"
    ),
    declare_refused("isolation.level", "aborted records are never archived, which is read_committed", "read_committed"),
    declare_refused(
        "auto.offset.reset",
        "which offsets are read is decided by the index, and a lost offset is a gap, never skipped",
        "earliest",
        "none",
        "error",
    ),
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

_TRUSTSTORE = "A truststore of type PEM becomes `ssl.ca.location`. JKS and PKCS12 are refused, and so is a password."
_KEYSTORE = (
    "A keystore of type PEM becomes `ssl.certificate.location` and `ssl.key.location`. One of type PKCS12 stays a"
    " keystore. JKS is refused."
)
_LOGIN = "`PlainLoginModule` or `ScramLoginModule`. It becomes `sasl.username` and `sasl.password`."

PAIRED_PROPERTIES = (
    declare_honoured("sasl.jaas.config", _LOGIN),
    declare_honoured("ssl.truststore.location", _TRUSTSTORE),
    declare_honoured("ssl.truststore.type", _TRUSTSTORE, "JKS"),
    declare_honoured("ssl.truststore.password", _TRUSTSTORE),
    declare_honoured("ssl.keystore.location", _KEYSTORE),
    declare_honoured("ssl.keystore.type", _KEYSTORE, "JKS"),
    declare_honoured("ssl.keystore.password", _KEYSTORE),
)
"""Properties that are read together, or that become several properties of librdkafka."""

CLIENT_KEYS = KeyTable((*CLIENT_PROPERTIES, *WITHOUT_MEANING_PROPERTIES, *REFUSED_PROPERTIES, *PAIRED_PROPERTIES))


@dataclass
class ClientOutcome:
    """The librdkafka properties of one scope, and the judgement of each property of the file, with its reason.

    Messages call each of them `what`. The values of `unknown` ones may be secret.
    """

    what: str = "client property"
    properties: dict[str, str] = field(default_factory=dict, repr=False)
    judgements: dict[str, tuple[Support, str]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    @property
    def refused(self) -> dict[str, str]:
        """The refused properties, with the reasons."""
        return {name: reason for name, (support, reason) in self.judgements.items() if support is Support.REFUSED}

    def judge(self, table: KeyTable, key: Key | None, name: str, value: str) -> bool:
        """Judge a property by its key. Return True if it is honoured, so its value has to be read."""
        if key is None:
            self.refuse(name, table.explain_unknown(name, self.what))
            return False
        is_needless = key.support is Support.WITHOUT_MEANING or key.is_neutral(value)
        self.judgements[name] = Support.WITHOUT_MEANING if is_needless else key.support, key.doc
        return key.support is Support.HONOURED

    def refuse(self, name: str, reason: str) -> None:
        """Refuse a property."""
        self.judgements[name] = Support.REFUSED, reason

    def leave(self, name: str, reason: str) -> None:
        """Accept a property without effect."""
        self.judgements[name] = Support.WITHOUT_MEANING, reason


def translate_properties(entries: Mapping[str, str], scope: Scope) -> ClientOutcome:
    """Translate the properties of one scope. `common` has the properties of every client, without prefix."""
    outcome = ClientOutcome()
    paired: dict[str, str] = {}
    for name, value in entries.items():
        key = (
            PRODUCER_REQUEST_TIMEOUT if (name, scope) == ("request.timeout.ms", "producer") else CLIENT_KEYS.find(name)
        )
        if key is None or key.is_family:
            outcome.unknown.add(name)
        if outcome.judge(CLIENT_KEYS, key, name, value):
            if isinstance(key, ClientProperty):
                _set_properties(outcome, {name: value}, partial(_translate_property, key, scope))
            else:
                paired[name] = value
    for prefix, translate in _PAIRS.items():
        if pair := {name: value for name, value in paired.items() if name.startswith(prefix)}:
            _set_properties(outcome, pair, translate)
    return outcome


def select_security(properties: Mapping[str, T]) -> dict[str, T]:
    """Return the librdkafka properties for connections, without those for reads and writes."""
    prefixes = ("security.", "sasl.", "ssl.", "enable.ssl.")
    return {name: value for name, value in properties.items() if name.startswith(prefixes)}


def _set_properties(
    outcome: ClientOutcome, entries: Mapping[str, str], translate: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> None:
    """Set librdkafka's properties for these entries of a file. If one of them is set already, refuse the entries."""
    try:
        properties = translate(entries)
        if twice := [name for name in properties if name in outcome.properties]:
            raise ValueError(f"another property sets librdkafka's {' and '.join(twice)} too; keep one")
    except ValueError as err:
        for name in entries:
            outcome.refuse(name, str(err))
    else:
        outcome.properties.update(properties)


def _translate_property(key: ClientProperty, scope: Scope, entries: Mapping[str, str]) -> dict[str, str]:
    if scope not in key.scopes:
        raise ValueError(f"is a property of the {' and the '.join(key.scopes)} only, which is its prefix")
    value = key.parse(*entries.values())
    _ask_librdkafka(key.target, value)
    return {key.target: value}


def _ask_librdkafka(name: str, value: str) -> None:
    """Raise ValueError if librdkafka does not accept the value. No client starts: none has the second property."""
    from confluent_kafka import KafkaException, Producer

    try:
        Producer({name: value, _UNKNOWN: ""})
    except KafkaException as err:
        objection = err.args[0].str().strip()
        if _UNKNOWN not in objection:
            raise ValueError(objection) from None


def _translate_truststore(entries: Mapping[str, str]) -> dict[str, str]:
    kind = entries.get("ssl.truststore.type", "JKS").upper()
    if kind != "PEM" or "ssl.truststore.password" in entries:
        raise ValueError("librdkafka reads no Java truststore; set ssl.ca.location to the CA certificates as PEM")
    location = entries.get("ssl.truststore.location")
    return {"ssl.ca.location": _parse_path(location)} if location else {}


def _translate_keystore(entries: Mapping[str, str]) -> dict[str, str]:
    kind = entries.get("ssl.keystore.type", "JKS").upper()
    if kind == "PEM" and "ssl.keystore.password" not in entries:
        names = ["ssl.certificate.location", "ssl.key.location"]
    elif kind == "PKCS12":
        names = ["ssl.keystore.location"]
    else:
        raise ValueError(
            "librdkafka reads no JKS keystore; set ssl.keystore.type to PKCS12,"
            " or to PEM with ssl.key.password instead of ssl.keystore.password"
        )
    location = entries.get("ssl.keystore.location")
    passwords = {name: value for name, value in entries.items() if name == "ssl.keystore.password"}
    return passwords | (dict.fromkeys(names, _parse_path(location)) if location else {})


def _translate_login(entries: Mapping[str, str]) -> dict[str, str]:
    """Return user name and password of a JAAS entry. No error may quote the entry: it holds the password."""
    shape = 'write it as <module> required username="..." password="...";'
    [text] = entries.values()
    try:
        words = shlex.split(text.strip().removesuffix(";"))
    except ValueError:
        raise ValueError(f"a quote is not closed; {shape}") from None
    if not words or words[0] not in _LOGIN_MODULES:
        raise ValueError(
            "only PlainLoginModule and ScramLoginModule are read;"
            " for others set librdkafka's sasl.kerberos.* or sasl.oauthbearer.* properties"
        )
    # The options follow the module and its flag, such as `required`.
    options = [word.partition("=") for word in words[2:]]
    if not all(equals for _, equals, _ in options):
        raise ValueError(f"an option has no value; {shape}")
    login = {f"sasl.{name}": value for name, _, value in options}
    if login.keys() - {"sasl.username", "sasl.password"}:
        raise ValueError(f"has an option besides username and password, which nothing here reads; {shape}")
    if not login.get("sasl.username") or not login.get("sasl.password"):
        raise ValueError(f"names no username or no password; {shape}")
    return login


_UNKNOWN = "kafka.s3.unknown"

_LOGIN_MODULES = (
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule",
)

_PAIRS = {
    "ssl.truststore.": _translate_truststore,
    "ssl.keystore.": _translate_keystore,
    "sasl.jaas.config": _translate_login,
}
"""Prefixes of properties that are read together, and how."""
