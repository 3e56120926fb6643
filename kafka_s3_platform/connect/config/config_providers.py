"""Replaces `${provider:path:key}` in the values of files, by the config providers declared in worker.properties.

Their classes are Kafka's own, and the ones Connect's users have for AWS. Values are looked up anew each time a file is
read, and no message quotes one.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from kafka_s3_platform.connect.aws_secrets import find_parameter, find_secret
from kafka_s3_platform.connect.config.keys.values import (
    Parser,
    expect_class,
    expect_integer,
    expect_one_of,
    parse_boolean,
    parse_endpoint_url,
    parse_java_regex,
)
from kafka_s3_platform.core.config.environment import find_local_default
from kafka_s3_platform.core.config.folder import WORKER_FILE, find_connectors_folder
from kafka_s3_platform.core.config.parse import read_properties, read_regular_file
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.java.regex import compile_java_regex

DECLARATION = "config.providers"
_KEY_STORE = re.compile(r"(?:key|trust)store\.location[\"\s:=]+([^\"\s]+)")
_VARIABLE = re.compile(r"\$\{([^}:]{0,100}):([^}]{0,1000})\}")
"""The lengths are bounded, so that the time does not grow with the square of a value's length."""


@dataclass(frozen=True)
class _ProviderClass:
    """The function that finds a provider's values, None if the environment has them, and the provider's parameters."""

    find: Callable[[Mapping[str, str], str, str], str] | None
    parameters: Mapping[str, tuple[str, Parser[str]]]


def _check_path(parameters: Mapping[str, str], path: str) -> Path:
    """Return the path if it lies in one of the paths the provider allows. As in Kafka, links are not resolved."""
    normal = Path(path)
    if not normal.is_absolute() or ".." in normal.parts:
        raise ValueError(f"{path!r} is no absolute path without ..")
    allowed = [text.strip() for text in parameters.get("allowed.paths", "").split(",") if text.strip()]
    if allowed and not any(normal.is_relative_to(folder) for folder in allowed):
        raise ValueError(f"{path} is in none of the provider's allowed.paths: {', '.join(allowed)}")
    return normal


def _find_property(parameters: Mapping[str, str], path: str, key: str) -> str:
    """Return the value of a key in a properties file, as Kafka's FileConfigProvider does."""
    try:
        return read_properties(_check_path(parameters, path))[key].get_secret_value()
    except ConfigError as err:
        raise ValueError(err.text) from err
    except KeyError:
        raise ValueError(f"{path} has no key {key!r}") from None


def _find_content(parameters: Mapping[str, str], path: str, key: str) -> str:
    """Return the content of the file `key` in the folder `path`, as Kafka's DirectoryConfigProvider does."""
    folder = _check_path(parameters, path)
    if Path(key).name != key:
        raise ValueError(f"{key!r} is no name of a file of {path}")
    try:
        return read_regular_file(folder / key).decode()
    except ConfigError as err:
        raise ValueError(err.text) from err
    except UnicodeDecodeError:
        raise ValueError(f"{folder / key} is no text in UTF-8") from None


def _find_variable(env: Mapping[str, str], parameters: Mapping[str, str], path: str, key: str) -> str:
    """Return the value of an environment variable. The embedded stack's variables default to its own values."""
    if path:
        raise ValueError(f"{path!r} has no meaning: write ${{env:NAME}}")
    if (pattern := parameters.get("allowlist.pattern")) and not compile_java_regex(pattern).fullmatch(key):
        raise ValueError(f"the provider's allowlist.pattern, {pattern}, allows no variable {key!r}")
    value = env[key] if key in env else find_local_default(key)
    if value is None:
        raise ValueError(f"the environment variable {key!r} is not set")
    return value


_AWS: Mapping[str, tuple[str, Parser[str]]] = {
    **dict.fromkeys(("region", "aws.region"), ("region", str)),
    **dict.fromkeys(("endpoint", "aws.endpoint.url", "aws.endpoint.override"), ("endpoint", parse_endpoint_url)),
    "aws.access.key": ("access_key", str),
    "aws.secret.key": ("secret_key", str),
    "secret.prefix": ("prefix", str),
    "secret.type": ("type", expect_one_of(("JSON", "STRING"))),
    "use.json": ("type", lambda text: "JSON" if parse_boolean(text) else "STRING"),
    **dict.fromkeys(("secret.ttl.ms", "secret.default.ttl"), ("ttl_ms", lambda text: str(expect_integer(1000)(text)))),
    "NotFoundStrategy": ("", expect_one_of(("fail",))),
    "aws.auth.method": ("", expect_one_of(("credentials", "default"))),
    **dict.fromkeys(("retry.count", "retry.interval.seconds", "timeout.seconds"), ("", str)),
    **dict.fromkeys(("thread.count", "polling.enabled", "polling.interval.seconds"), ("", str)),
}
"""The parameters of the classes for AWS, each with our name for it (empty if nothing reads it) and its parser."""

_KAFKA = "org.apache.kafka.common.config.provider."
_SECRET = _ProviderClass(find_secret, _AWS)
_PATHS: Mapping[str, tuple[str, Parser[str]]] = {"allowed.paths": ("allowed.paths", str)}
_PATTERN: Mapping[str, tuple[str, Parser[str]]] = {"allowlist.pattern": ("allowlist.pattern", parse_java_regex)}
_VARIABLES = _ProviderClass(None, _PATTERN)
_CLASSES: Mapping[str, _ProviderClass] = {
    f"{_KAFKA}FileConfigProvider": _ProviderClass(_find_property, _PATHS),
    f"{_KAFKA}DirectoryConfigProvider": _ProviderClass(_find_content, _PATHS),
    f"{_KAFKA}EnvVarConfigProvider": _VARIABLES,
    "io.strimzi.kafka.EnvVarConfigProvider": _VARIABLES,
    "com.amazonaws.kafka.config.providers.SecretsManagerConfigProvider": _SECRET,
    "com.amazonaws.kafka.config.providers.SsmParamStoreConfigProvider": _ProviderClass(find_parameter, _AWS),
    "io.confluent.csid.config.provider.aws.SecretsManagerConfigProvider": _SECRET,
    "com.github.jcustenborder.kafka.config.aws.SecretsManagerConfigProvider": _SECRET,
    "io.lenses.connect.secrets.providers.AWSSecretProvider": _SECRET,
}
_FILES = f"have it written to files, and read these by {_KAFKA}DirectoryConfigProvider or {_KAFKA}FileConfigProvider"
_PROVIDER_CLASS = expect_class(
    _CLASSES,
    {
        **dict.fromkeys(
            ("io.strimzi.kafka.KubernetesSecretConfigProvider", "io.strimzi.kafka.KubernetesConfigMapConfigProvider"),
            f"mount the Secret or ConfigMap, and read its files by {_KAFKA}DirectoryConfigProvider",
        ),
        "io.lenses.connect.secrets.providers.ENVSecretProvider": f"use {_KAFKA}EnvVarConfigProvider",
        "io.lenses.connect.secrets.providers.*": _FILES,
        "io.confluent.csid.config.provider.*": _FILES,
        "com.github.jcustenborder.kafka.config.*": _FILES,
        "com.amazonaws.kafka.config.providers.*": _FILES,
    },
)


class ConfigProviders:
    """The config providers of a file, by their names. `env` is one of them, even if it is not declared.

    `refusals` maps the key of each unusable declaration to the reason. `known_keys` are the keys known by name, so
    their values may be shown.
    """

    def __init__(self, env: Mapping[str, str], entries: Mapping[str, SecretStr] = {}) -> None:
        self._find_variable = partial(_find_variable, env)
        self._finders: dict[str, Callable[[str, str], str]] = {"env": partial(self._find_variable, {})}
        self.refusals: dict[str, str] = {}
        self.known_keys = {DECLARATION}
        texts = {key: value.get_secret_value().strip() for key, value in entries.items() if key.startswith(DECLARATION)}
        names = {name.strip() for name in texts.pop(DECLARATION, "").split(",")} - {""}
        for key in texts:
            if key.split(".")[2] not in names:
                self.refusals[key] = f"{DECLARATION} names no {key.split('.')[2]!r}"
        for name in sorted(names):
            self._declare(name, texts)

    def _declare(self, name: str, texts: Mapping[str, str]) -> None:
        """Make the provider with this name from its class and parameters. Their faults are added to `refusals`."""
        class_key = f"{DECLARATION}.{name}.class"
        prefix = f"{DECLARATION}.{name}.param."
        self.known_keys.add(class_key)
        try:
            provider_class = _PROVIDER_CLASS(texts.get(class_key, ""))
        except ValueError as err:
            self.refusals[class_key] = f"{err}; there are {_list_classes()}"
            return
        parameters: dict[str, str] = {}
        for key, text in texts.items():
            if key.startswith(prefix):
                try:
                    target, parse = provider_class.parameters[key.removeprefix(prefix)]
                    self.known_keys.add(key)
                    parameters[target] = parse(self.replace(text))
                except KeyError:
                    names = ", ".join(provider_class.parameters)
                    self.refusals[key] = f"no parameter of this class; there are {names}"
                except ValueError as err:
                    self.refusals[key] = str(err)
        parameters.pop("", None)
        self._finders[name] = partial(provider_class.find or self._find_variable, parameters)

    def replace(self, text: str) -> str:
        """Replace each variable in the text by its value. Raise ValueError, which quotes no value, if one has none."""
        return _VARIABLE.sub(self._find, text)

    def _find(self, match: re.Match[str]) -> str:
        """Return the value of `${provider:path:key}` or `${provider:key}`. Raise ValueError if it has none."""
        name, rest = match.groups()
        path, colon, key = rest.partition(":")
        find = self._finders.get(name)
        if find is None:
            raise ValueError(
                f"no config provider {name!r} is declared; in worker.properties, add it to {DECLARATION}, and set"
                f" {DECLARATION}.{name}.class to one of {_list_classes()}"
            )
        return find(path, key) if colon else find("", path)

    def list_values(self, text: str) -> Iterator[str]:
        """Yield the value of each variable in the text, or why it has none, so changes can be noticed."""
        for match in _VARIABLE.finditer(text):
            try:
                yield self._find(match)
            except ValueError as err:
                yield str(err)


def _list_classes() -> str:
    return ", ".join(_CLASSES)


def has_variable(text: str) -> bool:
    """Return True if the text has a variable to replace."""
    return _VARIABLE.search(text) is not None


def replace_variables(path: Path, entries: Mapping[str, SecretStr], env: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a file, with variables replaced by the config providers of worker.properties.

    Raises:
        ConfigError: a variable has no value, or worker.properties cannot be read.
    """
    providers = _read_providers(find_connectors_folder(env), env)
    try:
        return {name: providers.replace(value.get_secret_value()).strip() for name, value in entries.items()}
    except ValueError as err:
        raise ConfigError(f"{path}: {err}") from err


def list_outside_values(folder: Path) -> Callable[[str], Iterator[str]]:
    """Return a function that lists the values a file of this folder, given as text, takes from elsewhere.

    They are the values of its variables and the modification times of its key stores. If one of them is different, the
    file has to be loaded again.
    """
    try:
        providers = _read_providers(folder, os.environ)
    except ConfigError:
        # reported where it is loaded
        providers = ConfigProviders(os.environ)

    def list_values(text: str) -> Iterator[str]:
        yield from providers.list_values(text)
        for location in _KEY_STORE.findall(text):
            with suppress(OSError):
                yield str(Path(location).stat().st_mtime_ns)

    return list_values


def _read_providers(folder: Path, env: Mapping[str, str]) -> ConfigProviders:
    """Return the config providers declared by worker.properties in this folder."""
    worker = folder / WORKER_FILE
    return ConfigProviders(env, read_properties(worker) if worker.exists() else {})
