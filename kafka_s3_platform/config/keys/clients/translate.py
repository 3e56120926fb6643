"""Translates properties of Kafka's Java clients into librdkafka's, by the table in `properties`."""

import os
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kafka_s3_platform.config.keys.clients.properties import (
    CLIENT_KEYS,
    FILE_PROPERTIES,
    KEYSTORE,
    PAIRED_DOCS,
    PRODUCER_REQUEST_TIMEOUT,
    TRUSTSTORE,
    ClientProperty,
    Scope,
)
from kafka_s3_platform.config.keys.table import Support

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
