"""Translates the properties of Kafka's Java clients into librdkafka's, by a table of their counterparts.

A property is passed on under librdkafka's name, accepted without meaning, or refused with a reason. A property of
librdkafka alone is written under its own name. librdkafka itself judges the values passed to it.
"""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
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
    expect_class,
    expect_integer,
    expect_match,
    expect_one_of,
    parse_boolean,
)
from kafka_s3_platform.core.aws_login import MSK_MECHANISM, MSK_OPTIONS
from kafka_s3_platform.core.keystores import read_key_store

T = TypeVar("T")
Scope = Literal["common", "consumer", "producer", "admin"]
ALL_SCOPES: frozenset[Scope] = frozenset({"common", "consumer", "producer", "admin"})


@dataclass(frozen=True)
class ClientProperty(Key):
    """A property passed on as `target`. `parse` makes librdkafka's text with the same meaning as Java's."""

    scopes: frozenset[Scope] = ALL_SCOPES
    target: str = ""
    parse: Parser[str] = str


def _pass_on(parse: Parser[str], names: str, *scopes: Scope) -> tuple[ClientProperty, ...]:
    """Declare properties to be passed to librdkafka, for these clients or for all.

    Blanks separate the `names`. A name of Java's clients is followed by `=` and librdkafka's name.
    """

    def declare(name: str, target: str) -> ClientProperty:
        doc = f"Passed to librdkafka as `{target}`." if target else "Passed to librdkafka."
        allowed = frozenset(scopes) or ALL_SCOPES
        return ClientProperty(name, Support.HONOURED, doc, scopes=allowed, target=target or name, parse=parse)

    return tuple(declare(name, target) for name, _, target in (pair.partition("=") for pair in names.split()))


def _parse_text(text: str) -> str:
    """Return the text. Raise ValueError if it is empty."""
    if not text:
        raise ValueError("is empty; leave the key out")
    return text


def _parse_path(text: str) -> str:
    """Make a path absolute, because a task may run in another directory, or in a renamed one."""
    # librdkafka's own word for the places where systems keep authorities
    return text if text == "probe" else os.path.abspath(_parse_text(text))  # noqa: PTH100 - no link is resolved


def _expect_number(low: int = -(2**63), high: int = 2**63 - 1) -> Parser[str]:
    """Return a parser of decimal numbers. Without it, librdkafka would take 1e3 for 1, and 010 for 8."""
    return lambda text: str(expect_integer(low, high)(text))


def _parse_truth(text: str) -> str:
    return "true" if parse_boolean(text) else "false"


def _parse_acks(text: str) -> str:
    """Return `all`, the only value of `acks` a restore takes."""
    if text.casefold() not in {"all", "-1"}:
        raise ValueError("a restore is acknowledged by all in-sync replicas; remove the key or say all")
    return "all"


# librdkafka writes these arguments into a command line of kinit, which has options.
_PLAIN = ", of letters, digits and . _ / @ - alone, as a shell reads it"

CLIENT_PROPERTIES = (
    *_pass_on(_parse_text, "security.protocol"),
    *_pass_on(
        expect_one_of(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER", MSK_MECHANISM)),
        "sasl.mechanism",
    ),
    *_pass_on(_parse_text, "sasl.username sasl.password"),
    *_pass_on(expect_match(r"\w[\w.-]*", f"name such as kafka{_PLAIN}"), "sasl.kerberos.service.name"),
    *_pass_on(
        expect_match(r"\w[\w./@-]*", f"principal such as me/host.example.com@EXAMPLE.COM{_PLAIN}"),
        "sasl.kerberos.principal",
    ),
    # A relative path would bring the name of the working directory into the command line.
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
        """ssl.ca.pem ssl.certificate.pem ssl.key.pem ssl.truststore.certificates=ssl.ca.pem
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
    *_pass_on(
        lambda text: str(max(1, expect_integer(1)(text) // 1024)),
        "buffer.memory=queue.buffering.max.kbytes",
        "producer",
    ),
    *_pass_on(str.casefold, "compression.type", "producer"),
    # A restore needs an idempotent producer: at most 5 requests in flight, and at least one retry.
    *_pass_on(_expect_number(1, 5), "max.in.flight.requests.per.connection", "producer"),
    *_pass_on(_expect_number(1), "retries", "producer"),
)

[PRODUCER_REQUEST_TIMEOUT] = _pass_on(_expect_number(), "request.timeout.ms", "producer")
"""The scope `producer`, the only one in which librdkafka has a property of this name. It means the same as in Java."""

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
    declare_refused(
        "sasl.client.callback.handler.class",
        f"{_JAVA_HANDLER}, except Amazon's for MSK; set sasl.oauthbearer.method to oidc",
        "",
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    ),
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

_TRUSTSTORE = "Java's truststore. Its certificates become `ssl.ca.pem`; one of type PEM becomes `ssl.ca.location`."
_KEYSTORE = (
    "Java's keystore. Its key and certificates become `ssl.key.pem` and `ssl.certificate.pem`; one of type PEM becomes"
    " `ssl.certificate.location` and `ssl.key.location`. `ssl.key.password` is needed if it is another one."
)
_LOGIN = (
    "The module and its options. `PlainLoginModule`, `ScramLoginModule`: `sasl.username` and `sasl.password`."
    " `OAuthBearerLoginModule`: `clientId`, `clientSecret`, `scope`, `extension_...` become `sasl.oauthbearer.*`."
    " Amazon's `IAMLoginModule`: [MSK by IAM](aws.md#msk), `awsDebugCreds`, `awsMaxRetries` and `awsMaxBackOffTimeMs`"
    " are ignored."
)

PAIRED_PROPERTIES = (
    declare_honoured("sasl.jaas.config", _LOGIN),
    declare_honoured(
        "sasl.login.callback.handler.class",
        "Where tokens of OAUTHBEARER come from: Kafka's `OAuthBearerLoginCallbackHandler` becomes"
        " `sasl.oauthbearer.method=oidc`; Amazon's `IAMOAuthBearerLoginCallbackHandler` signs them for MSK.",
    ),
    declare_honoured("ssl.truststore.location", _TRUSTSTORE),
    declare_honoured("ssl.truststore.type", _TRUSTSTORE, "JKS"),
    declare_honoured("ssl.truststore.password", _TRUSTSTORE),
    declare_honoured("ssl.keystore.location", _KEYSTORE),
    declare_honoured("ssl.keystore.type", _KEYSTORE, "JKS"),
    declare_honoured("ssl.keystore.password", _KEYSTORE),
    declare_honoured("ssl.key.password", "Password of the private key, in a keystore or as PEM."),
)
"""Properties that are read together, or translated to several properties of librdkafka."""

CLIENT_KEYS = KeyTable((*CLIENT_PROPERTIES, *WITHOUT_MEANING_PROPERTIES, *REFUSED_PROPERTIES, *PAIRED_PROPERTIES))


@dataclass
class ClientOutcome:
    """The judgement, with its reason, of each client property or converter option; and the properties for librdkafka.

    `what` is the noun for one of them in messages. The values of the `unknown` ones may be secret.
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

    def read(self, entries: Mapping[str, str], name: str, parse: Parser[T], default: T) -> T:
        """Return the parsed value of a property, or `default` if it is unset, empty or refused."""
        try:
            return parse(entries[name]) if entries.get(name) else default
        except ValueError as err:
            self.refuse(name, str(err))
            return default

    def refuse(self, name: str, reason: str) -> None:
        """Refuse a property."""
        self.judgements[name] = Support.REFUSED, reason

    def ignore(self, name: str, reason: str) -> None:
        """Accept a property without effect."""
        self.judgements[name] = Support.WITHOUT_MEANING, reason


def translate_properties(entries: Mapping[str, str], scope: Scope) -> ClientOutcome:
    """Translate the properties of one scope. The scope `common` has the properties of every client, without prefix."""
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
    for prefixes, translate in _PAIRS.items():
        if pair := {name: value for name, value in paired.items() if name.startswith(prefixes)}:
            _set_properties(outcome, pair, translate)
    return outcome


def select_security(properties: Mapping[str, T]) -> dict[str, T]:
    """Return the librdkafka properties for connections, without those for reads and writes."""
    prefixes = ("security.", "sasl.", "ssl.", "enable.ssl.")
    return {name: value for name, value in properties.items() if name.startswith(prefixes)}


def _set_properties(
    outcome: ClientOutcome, entries: Mapping[str, str], translate: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> None:
    """Set librdkafka's properties for these entries of a file. Refuse the entries if one is already set."""
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
    """Return librdkafka's property for a file's. Raise ValueError if it is not for this kind of client."""
    if scope not in key.scopes:
        raise ValueError(f"is a property of the {' and the '.join(key.scopes)} only, which is its prefix")
    value = key.parse(*entries.values())
    _ask_librdkafka(key.target, value)
    return {key.target: value}


def _ask_librdkafka(name: str, value: str) -> None:
    """Raise ValueError if librdkafka does not accept the value. No client starts, since none has `_UNKNOWN`."""
    from confluent_kafka import KafkaException, Producer

    try:
        Producer({name: value, _UNKNOWN: ""})
    except KafkaException as err:
        objection = err.args[0].str().strip()
        if _UNKNOWN not in objection:
            raise ValueError(objection) from None


def _translate_truststore(entries: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's properties for the trusted certificates in a Java truststore."""
    location = entries.get("ssl.truststore.location")
    if not location:
        return {}
    password = entries.get("ssl.truststore.password", "")
    if _read_type(entries, "ssl.truststore.type") == "PEM":
        if password:
            raise ValueError("a truststore of type PEM has no password")
        return {"ssl.ca.location": _parse_path(location)}
    store = read_key_store(Path(_parse_path(location)), password)
    if not store.trusted:
        raise ValueError(f"{location} has no trusted certificate")
    return {"ssl.ca.pem": store.trusted}


def _translate_keystore(entries: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's properties for the key and certificates in a Java keystore."""
    location = entries.get("ssl.keystore.location")
    of_key = {name: _parse_text(text) for name, text in entries.items() if name == "ssl.key.password"}
    if not location:
        return of_key
    path = _parse_path(location)
    password = entries.get("ssl.keystore.password", "")
    if _read_type(entries, "ssl.keystore.type") == "PEM":
        if password:
            raise ValueError("a keystore of type PEM has no password but ssl.key.password")
        return {"ssl.certificate.location": path, "ssl.key.location": path, **of_key}
    store = read_key_store(Path(path), password, of_key.get("ssl.key.password", ""))
    if not store.key:
        raise ValueError(f"{location} has no private key")
    return {"ssl.certificate.pem": store.chain, "ssl.key.pem": store.key}


def _read_type(entries: Mapping[str, str], name: str) -> str:
    """Return the type of a Java key store, JKS unless the file names another."""
    return expect_one_of(("JKS", "PKCS12", "PEM"))(entries.get(name) or "JKS")


def _translate_login(entries: Mapping[str, str]) -> dict[str, str]:
    """Return the properties for a JAAS entry. No error may quote the entry, because it holds the password."""
    [text] = entries.values()
    module, options = _parse_jaas(text)
    names = _LOGIN_MODULES.get(module)
    if names is None:
        modules = ", ".join(name.rpartition(".")[2] for name in _LOGIN_MODULES)
        raise ValueError(f"only {modules} are read; for Kerberos set librdkafka's sasl.kerberos.* properties")
    extensions = {n.removeprefix(_EXTENSION): value for n, value in options.items() if n.startswith(_EXTENSION)}
    if names is _OAUTH and extensions:
        of_file = ",".join(f"{name}={value}" for name, value in extensions.items())
        options = {"extensions": of_file, **{n: v for n, v in options.items() if not n.startswith(_EXTENSION)}}
    if options.keys() - names.keys():
        raise ValueError(f"has an option besides {' and '.join(names)}, which nothing here reads")
    if names is _USER and not (options.get("username") and options.get("password")):
        raise ValueError(f"names no username or no password; {_LOGIN_SHAPE}")
    return {names[name]: value for name, value in options.items() if names[name]}


def _parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Return the login module of a JAAS entry, and the options that follow a flag such as `required`."""
    try:
        words = shlex.split(text.strip().removesuffix(";"))
    except ValueError:
        raise ValueError(f"a quote is not closed; {_LOGIN_SHAPE}") from None
    options = [word.partition("=") for word in words[2:]]
    if not all(equals for _, equals, _ in options):
        raise ValueError(f"an option has no value; {_LOGIN_SHAPE}")
    return " ".join(words[:1]), {name: value for name, _, value in options}


def _translate_handler(entries: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's counterpart of a Java class that fetches tokens."""
    [handler] = entries.values()
    return {"sasl.oauthbearer.method": _HANDLERS(handler)} if handler else {}


_UNKNOWN = "kafka.s3.unknown"

_LOGIN_SHAPE = 'write it as <module> required username="..." password="...";'
_EXTENSION = "extension_"
_USER = {"username": "sasl.username", "password": "sasl.password"}
_MSK = {**MSK_OPTIONS, **dict.fromkeys(("awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"), "")}
_OAUTH = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
    "extensions": "sasl.oauthbearer.extensions",
    **_MSK,
}
_LOGIN_MODULES: Mapping[str, Mapping[str, str]] = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": _USER,
    "org.apache.kafka.common.security.scram.ScramLoginModule": _USER,
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": _OAUTH,
    "software.amazon.msk.auth.iam.IAMLoginModule": _MSK,
}
"""The options of each login module, and the librdkafka properties they become, or "" if nothing reads an option."""

_HANDLERS = expect_class(
    {
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler": "oidc",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler": "oidc",
        "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler": MSK_MECHANISM,
    }
)

_PAIRS = {
    ("ssl.truststore.",): _translate_truststore,
    ("ssl.keystore.", "ssl.key.password"): _translate_keystore,
    ("sasl.jaas.config",): _translate_login,
    ("sasl.login.callback.handler.class",): _translate_handler,
}
"""The prefixes of properties that are read together, and the function that reads them."""
