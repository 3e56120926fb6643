"""The options of a converter: its own, and the ones for its Schema Registry client.

Sources: Kafka's JsonConverter, Confluent's AbstractKafkaSchemaSerDeConfig and SchemaRegistryClientConfig, and the names
in confluent-kafka's `SchemaRegistryClient`.
"""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from kafka_s3_platform.connect.config.keys.clients import CLIENT_KEYS, ClientOutcome, translate_properties
from kafka_s3_platform.connect.config.keys.table import (
    Key,
    KeyTable,
    Support,
    declare_honoured,
    declare_refused,
    declare_without_meaning,
)
from kafka_s3_platform.connect.config.keys.values import expect_one_of, parse_boolean
from kafka_s3_platform.core.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.core.keystores import PEM_PROPERTIES

PROTOBUF_OPTIONS = ("generate.index.for.unions", "flatten.unions", "wrapper.for.nullables")
PRESERVE_OTHERS = "preserve.additional.properties"
WITH_REGISTRY = ("AVRO", "JSON_SR", "PROTOBUF")

_BEARER = (
    "bearer.auth.credentials.source",
    "bearer.auth.token",
    "bearer.auth.logical.cluster",
    "bearer.auth.identity.pool.id",
    "bearer.auth.client.id",
    "bearer.auth.client.secret",
    "bearer.auth.scope",
    "bearer.auth.issuer.endpoint.url",
)
_SSL_PROPERTIES = (
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
    *PEM_PROPERTIES,
)
_NOT_REGISTRYS = "the registry's client has no such property"

DECIMAL_FORMAT = "decimal.format"
REPLACE_NULLS = "replace.null.with.default"
_PREFIX = "schema.registry."
_IMPLIED = ("ssl.endpoint.identification.algorithm",)
"""Properties that need no translation, since the registry's client always checks the names of servers."""

_URL = "schema.registry.url"
_SOURCE = "basic.auth.credentials.source"
_USER_INFO = "basic.auth.user.info"

REGISTERING = "An archive registers no schema. A restore registers those of what it writes anew, whatever this says."
OWN_SCHEMAS = (
    "Schemas of Avro are written as registered, others as Avro with full names. JSON names a type of a union without"
    " its namespace, unless two of them would have one name."
)
TEXT_KEYS = "A map whose keys are texts is a map, also where they are optional."

OPTION_KEYS: tuple[Key, ...] = (
    declare_honoured(
        "schemas.enable",
        "Each JSON value carries its schema, as JsonConverter writes them.",
        "true for JsonConverter; false for `input.data.format`",
    ),
    declare_honoured(
        _URL, "URL of the registry, or several, separated by commas.", "required for AVRO, JSON_SR and PROTOBUF"
    ),
    declare_honoured(
        _SOURCE,
        "Where the registry's login is: `URL` or `USER_INFO`. This key and all below may also begin with"
        " `schema.registry.`.",
        "URL",
    ),
    declare_honoured(_USER_INFO, "Login for the registry, as `user:password`."),
    *(declare_honoured(name, "Passed to the registry's client.") for name in _BEARER),
    declare_honoured("ssl.*", "TLS of the registry, under Kafka's or librdkafka's names: PEM, or key stores of Java."),
    *(
        declare_honoured(name, f"For PROTOBUF: {what}.", default)
        for name, default, what in (
            ("generate.index.for.unions", "true", "the name of a oneof's field includes its index"),
            ("flatten.unions", "false", "the alternatives of a oneof become fields of the message itself"),
            ("wrapper.for.nullables", "false", "Google's wrapper messages become nullable values"),
        )
    ),
    declare_honoured(
        PRESERVE_OTHERS,
        "For JSON_SR: properties that the schema allows and does not list are kept, as JSON, in the field"
        " `__connect_additional_properties__` of their object. If not, they are left out, and the run's log tells so.",
        "false",
    ),
    declare_honoured(
        DECIMAL_FORMAT,
        "For JsonConverter: how a restore writes decimals, `BASE64` or `NUMERIC`. Both are read.",
        "BASE64",
    ),
    *declare_without_meaning(
        "A run keeps its schemas.", "schemas.cache.size schemas.cache.config max.schemas.per.subject"
    ),
    declare_honoured(
        REPLACE_NULLS,
        "For JsonConverter with schemas: whether a null that is read becomes the default of its field, if the field has"
        " one. Connect's own default is `true`. An absent field becomes the default either way. A null that is written"
        " stays null.",
        "false",
    ),
    *declare_without_meaning("A null stays null, as with `true`.", "ignore.default.for.nullables"),
    *declare_without_meaning("Set by Connect's runtime.", "converter.type"),
    *declare_without_meaning(
        REGISTERING,
        """auto.register.schemas use.schema.id id.compatibility.strict normalize.schemas subject.name.strategy
        key.subject.name.strategy value.subject.name.strategy reference.subject.name.strategy
        avro.remove.java.properties""",
    ),
    *declare_without_meaning(
        "A value is read by the schema that its id names, and by no later one.",
        "use.latest.version latest.compatibility.strict specific.avro.reader avro.use.logical.type.converters",
    ),
    *declare_without_meaning(
        OWN_SCHEMAS,
        "connect.meta.data enhanced.avro.schema.support enhanced.protobuf.schema.support discard.type.doc.default",
    ),
    *declare_without_meaning(
        "Names stay as they are. One that Avro does not allow fails its records in Avro objects.", "scrub.invalid.names"
    ),
    *declare_without_meaning(TEXT_KEYS, "allow.optional.map.keys"),
    declare_refused(
        "generalized.sum.type.support", "the types of a union are named by their names, not by their positions", "false"
    ),
    declare_refused("flatten.singleton.unions", "a union of one type is read as that type", "true"),
    declare_refused("converter.encoding", "text is UTF-8", "UTF-8", "UTF8", ""),
    declare_refused("encoding", "text is UTF-8", "UTF-8", "UTF8", ""),
)

_KEYS = KeyTable(OPTION_KEYS)


def read_converter(
    format_name: str, options: Mapping[str, str], *, schemas_enable: bool
) -> tuple[ConverterSettings, ClientOutcome]:
    """Return the settings of a converter, and the judgement of each of its options.

    Args:
        format_name: the format of the bytes, such as AVRO, or the dotted name of a user's class.
        options: the converter's options, without their prefix.
        schemas_enable: the default of `schemas.enable`.
    """
    outcome = ClientOutcome("option of a converter")
    if "." in format_name:
        return _read_plugin(outcome, format_name, options), outcome
    accepted = {name: value for name, value in options.items() if _judge_option(outcome, name, value)}
    short_names = {name.removeprefix(_PREFIX) if name != _URL else name: name for name in accepted}
    enable = outcome.read(accepted, "schemas.enable", parse_boolean, schemas_enable)
    is_json = format_name == "JSON"
    _ignore_options_of_others(outcome, accepted, format_name)
    if format_name in WITH_REGISTRY:
        registry = _read_registry(outcome, {n: accepted[written] for n, written in short_names.items()}, short_names)
        chosen = {name: accepted[name] for name in PROTOBUF_OPTIONS if name in accepted}
        if format_name == "JSON_SR" and outcome.read(accepted, PRESERVE_OTHERS, parse_boolean, default=False):
            chosen[PRESERVE_OTHERS] = "true"
        settings = {"format": format_name, "registry": registry, "options": chosen}
        return ConverterSettings.model_validate(settings), outcome
    for name in accepted:
        if name not in {"schemas.enable", DECIMAL_FORMAT, REPLACE_NULLS, PRESERVE_OTHERS}:
            outcome.ignore(name, f"{format_name} needs no registry.")
    chosen = {}
    if is_json and outcome.read(accepted, DECIMAL_FORMAT, expect_one_of(("BASE64", "NUMERIC")), "BASE64") == "NUMERIC":
        chosen[DECIMAL_FORMAT] = "NUMERIC"
    if is_json and outcome.read(accepted, REPLACE_NULLS, parse_boolean, default=False):
        chosen[REPLACE_NULLS] = "true"
    plain = {"format": format_name, "schemas_enable": enable and is_json, "options": chosen}
    return ConverterSettings.model_validate(plain), outcome


def _read_plugin(outcome: ClientOutcome, class_name: str, options: Mapping[str, str]) -> ConverterSettings:
    """Pass all options to a user's class. Any of them may be secret."""
    outcome.judgements.update(dict.fromkeys(options, (Support.HONOURED, "Passed to the class.")))
    outcome.unknown.update(options)
    secrets = {name: SecretStr(value) for name, value in options.items()}
    return ConverterSettings(format=class_name, plugin_options=secrets)


def _ignore_options_of_others(outcome: ClientOutcome, accepted: Mapping[str, str], format_name: str) -> None:
    """Mark the options of JsonConverter and of JsonSchemaConverter as without meaning for other converters."""
    if PRESERVE_OTHERS in accepted and format_name != "JSON_SR":
        outcome.ignore(PRESERVE_OTHERS, "Belongs to JsonSchemaConverter.")
    for name in {DECIMAL_FORMAT, REPLACE_NULLS} & accepted.keys() if format_name != "JSON" else ():
        outcome.ignore(name, "Belongs to JsonConverter.")


def is_known_option(name: str) -> bool:
    """Return True if an option, without its converter's prefix, is known by its full name. Others may be secret."""
    short_name = name.removeprefix(_PREFIX)
    client_key = CLIENT_KEYS.find(short_name) if short_name.startswith("ssl.") else None
    keys = (_KEYS.find(name), _KEYS.find(short_name), client_key)
    return any(key is not None and not key.is_family for key in keys)


def is_registry_option(name: str) -> bool:
    """Return True if an option sets a registry's address, login or TLS. It may have its converter's prefix."""
    return name.rsplit(".converter.", maxsplit=1)[-1].startswith((_PREFIX, "basic.auth.", "bearer.auth.", "ssl."))


def _judge_option(outcome: ClientOutcome, name: str, value: str) -> bool:
    """Judge an option by the table. Return True if it is honoured, so its value has to be read."""
    key = _KEYS.find(name) or _KEYS.find(name.removeprefix(_PREFIX))
    if not is_known_option(name):
        outcome.unknown.add(name)
    return outcome.judge(_KEYS, key, name, value)


def _read_registry(
    outcome: ClientOutcome, options: Mapping[str, str], written: Mapping[str, str]
) -> RegistrySettings | None:
    """Read the address of a registry, and its login and TLS. Return None if the address is refused.

    `written` maps the options to their names in the file, with or without the prefix `schema.registry.`.
    """
    urls = [url.strip() for url in options.get(_URL, "").split(",") if url.strip()]
    if not urls:
        outcome.refuse(_URL, "required: says where the registry is")
        return None
    try:
        plain, login = zip(*(_split_login(url) for url in urls), strict=True)
    except ValueError as err:
        outcome.refuse(_URL, str(err))
        return None
    properties = _read_tls(outcome, options, written) | {n: options[n] for n in _BEARER if options.get(n)}
    if user_info := _read_user_info(outcome, options, written) or next(filter(None, login), ""):
        properties[_USER_INFO] = user_info
    secret = {name: SecretStr(value) for name, value in properties.items()}
    return RegistrySettings(url=",".join(plain), properties=secret)


def _split_login(url: str) -> tuple[str, str]:
    """Split a URL into the URL without credentials, and its credentials as `user:password`."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # not chained: the message of urlsplit may quote the password
        raise ValueError("is no URL such as https://registry.example.com:8081") from None
    if "@" in parts._replace(netloc="").geturl():
        raise ValueError("has an @ behind its host; write /, ?, # and @ of a password as %2F, %3F, %23 and %40")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("is no URL such as https://registry.example.com:8081")
    if parts.query or parts.fragment:
        # not quoted: it may be a secret
        raise ValueError("has a ? or #, which no request to a registry keeps: name scheme, host, port and path only")
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/"), login


def _read_user_info(outcome: ClientOutcome, options: Mapping[str, str], written: Mapping[str, str]) -> str:
    """Read the login `user:password`. Return "" if none is set."""
    source = options.get(_SOURCE, "").upper()
    if source not in {"", "URL", "USER_INFO"}:
        outcome.refuse(written[_SOURCE], f"{source} is not honoured; say USER_INFO with {_USER_INFO}, or URL")
    user_info = options.get(_USER_INFO, "")
    if source == "USER_INFO" and ":" not in user_info:
        outcome.refuse(written.get(_USER_INFO, _USER_INFO), "required: `user:password`, as USER_INFO says")
    return user_info


def _read_tls(outcome: ClientOutcome, options: Mapping[str, str], written: Mapping[str, str]) -> dict[str, str]:
    """Read the TLS properties under the names that librdkafka and the registry's client share."""
    translated = translate_properties({n: value for n, value in options.items() if n.startswith("ssl.")}, "common")
    unusable = translated.properties.keys() - {*_SSL_PROPERTIES, *_IMPLIED}
    for name, (support, reason) in translated.judgements.items():
        if support is not Support.HONOURED:
            outcome.judgements[written[name]] = support, reason
        elif unusable:
            outcome.refuse(written[name], _NOT_REGISTRYS)
    return {name: value for name, value in translated.properties.items() if name in _SSL_PROPERTIES}
