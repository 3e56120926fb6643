"""The kind of an error of Kafka, and its remedy, by the words of brokers and librdkafka."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_s3_platform.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Advice:
    """The kind of an error, and its remedy, as a sentence without its full stop."""

    code: ErrorCode
    text: str


_RIGHTS = "docs/rights.md lists the rights that each run needs"
_TLS_AT_PORT = (
    "If the broker runs, this port speaks TLS: set security.protocol to SSL, or to SASL_SSL where it asks for a login"
)
_NO_TLS_AT_PORT = (
    "This port does not speak TLS: set security.protocol to PLAINTEXT, or to SASL_PLAINTEXT where it asks for a login, "
    "or name the port that does in bootstrap.servers"
)
_LOGIN_AT_PORT = (
    "If the broker runs, this port asks for a login: set security.protocol to {}, and sasl.mechanism, user and password"
)
_NO_LOGIN_AT_PORT = (
    "This port takes no login: set security.protocol to PLAINTEXT, or to SSL where it speaks TLS, or name the port "
    "that does in bootstrap.servers"
)
_NO_KAFKA = (
    "What answers at that port does not speak Kafka as security.protocol says: correct the port in bootstrap.servers, "
    "or security.protocol"
)
_UNTRUSTED = (
    "The broker's certificate is of an authority that ssl.ca.location does not name, or is out of date, or holds "
    "another name than the broker is called by. `openssl s_client -connect HOST:PORT -CAfile FILE -verify_hostname "
    "HOST` tells which (-verify_ip where HOST is an address)"
)
_OWN_UNTRUSTED = (
    "The broker asks for a certificate and accepts none of ours: have ssl.certificate.location and ssl.key.location "
    "name one of an authority that it knows"
)
_NAME = (
    "Correct the name in bootstrap.servers. If it is right, or is one that the brokers give for themselves "
    "(advertised.listeners), have this machine's name service know it"
)
_REFUSED = (
    "Nothing listens there: check that the brokers run, and that bootstrap.servers, or advertised.listeners of the "
    "brokers, name their addresses"
)
_LOGIN = "Correct sasl.username and sasl.password (sasl.jaas.config has both), or sasl.mechanism"
_REACH = "Check that the brokers run, and that this machine reaches them; run again when they answer"
_BROKER_DISK = "The disk of the broker that leads fails or is full: look at its log; run again when another one leads"
_REPLICAS = "Too few replicas are in sync: start the brokers that are down, or wait until they have caught up"
LOWER_TIMEOUT = (
    "Set producer.transaction.timeout.ms of the target's worker file to the brokers' transaction.max.timeout.ms or less"
)
_TOPIC = "Correct the topic's name, or create the topic"

_BY_WORDS: tuple[tuple[str, Advice], ...] = (
    (r"alert .*certificate|alert unknown ca", Advice(ErrorCode.KAFKA_CERT, _OWN_UNTRUSTED)),
    (r"certificate verify failed", Advice(ErrorCode.KAFKA_CERT, _UNTRUSTED)),
    (r"connecting to a PLAINTEXT broker listener", Advice(ErrorCode.KAFKA_TLS, _NO_TLS_AT_PORT)),
    (r"current SASL state", Advice(ErrorCode.KAFKA_LOGIN, _NO_LOGIN_AT_PORT)),
    (
        r"Unsupported SASL mechanism",
        Advice(ErrorCode.KAFKA_LOGIN, "Set sasl.mechanism to one of those that the broker lists"),
    ),
    (
        r"No provider for SASL mechanism",
        Advice(ErrorCode.CONFIG, "Set sasl.mechanism to one of those that this client is built with"),
    ),
    (r"Invalid response size", Advice(ErrorCode.KAFKA_TLS, _NO_KAFKA)),
    (r"Failed to resolve", Advice(ErrorCode.KAFKA_NAME, _NAME)),
    (r"Connection refused", Advice(ErrorCode.KAFKA_DOWN, _REFUSED)),
    # librdkafka names the protocol before the address, unless it is PLAINTEXT.
    (
        r"(?:^|[ ;])(?:sasl_plaintext://)?[^/ ]+/\w+: Disconnected.* in state APIVERSION_QUERY",
        Advice(ErrorCode.KAFKA_TLS, _TLS_AT_PORT),
    ),
    (
        # Or an error of SSL, above: it depends on what of the broker's answer has arrived.
        r"(?:^|[ ;])(?:sasl_)?ssl://[^/ ]+/\w+: Disconnected.* in state SSL_HANDSHAKE",
        Advice(ErrorCode.KAFKA_TLS, f"If the broker runs: {_NO_TLS_AT_PORT[0].lower()}{_NO_TLS_AT_PORT[1:]}"),
    ),
    (
        r"(?:^|[ ;])ssl://[^/ ]+/\w+: Disconnected.*after \d{1,3}ms in state UP",
        Advice(ErrorCode.KAFKA_TLS, _LOGIN_AT_PORT.format("SASL_SSL")),
    ),
    (
        r"(?:^|[ ;])[^/ ]+/\w+: Disconnected.*after \d{1,3}ms in state UP",
        Advice(ErrorCode.KAFKA_TLS, _LOGIN_AT_PORT.format("SASL_PLAINTEXT")),
    ),
)
"""What is found first tells what to do about an error of a connection. Answers of brokers are about something else."""

_BY_NAME: Mapping[str, Advice] = {
    "_AUTHENTICATION": Advice(ErrorCode.KAFKA_LOGIN, _LOGIN),
    "SASL_AUTHENTICATION_FAILED": Advice(ErrorCode.KAFKA_LOGIN, _LOGIN),
    **{
        f"{name}_AUTHORIZATION_FAILED": Advice(ErrorCode.KAFKA_RIGHTS, f"The user lacks a right on {what}: {_RIGHTS}")
        for name, what in (
            ("TOPIC", "the topic"),
            ("GROUP", "the group"),
            ("CLUSTER", "the cluster"),
            ("TRANSACTIONAL_ID", "the transactional id"),
        )
    },
    "INVALID_TRANSACTION_TIMEOUT": Advice(ErrorCode.CONFIG, LOWER_TIMEOUT),
    "KAFKA_STORAGE_ERROR": Advice(ErrorCode.KAFKA_DOWN, _BROKER_DISK),
    "NOT_ENOUGH_REPLICAS": Advice(ErrorCode.KAFKA_DOWN, _REPLICAS),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": Advice(ErrorCode.KAFKA_DOWN, _REPLICAS),
    "UNKNOWN_TOPIC_OR_PART": Advice(ErrorCode.KAFKA_TOPIC, _TOPIC),
    "_UNKNOWN_TOPIC": Advice(ErrorCode.KAFKA_TOPIC, _TOPIC),
    **{
        name: Advice(ErrorCode.KAFKA_DOWN, _REACH)
        for name in ("_ALL_BROKERS_DOWN", "_MSG_TIMED_OUT", "_RESOLVE", "_SSL", "_TIMED_OUT", "_TRANSPORT")
    },
}


def advise_on_error(name: str, message: str) -> Advice | None:
    """Return the kind and the remedy, None if unknown.

    Args:
        name: the name of the error's code.
        message: the report of the broker or the client on it and on its connections.
    """
    is_of_client = name.startswith("_") or name == "SASL_AUTHENTICATION_FAILED"
    matching = (advice for words, advice in _BY_WORDS if is_of_client and re.search(words, message))
    return next(matching, _BY_NAME.get(name))
