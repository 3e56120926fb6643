"""The keys of one file, judged one by one, so that a file's errors are all told at once."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from pydantic import SecretStr

from kafka_s3_platform.config.clients import ClientOutcome
from kafka_s3_platform.config.keys import NOT_YET, Key, KeyTable, Support
from kafka_s3_platform.config.values import Parser

T = TypeVar("T")

MASK = "****"

_SECRET = re.compile(
    r"secret|password|passwd|passphrase|pwd|token|credential|jaas|licen[sc]e|user\.info|username"
    r"|(access|api)[._]?key|key[._]?id|\.pem$|keystore\.key$|private|customer\.key"
)
_USER_INFO = re.compile(r"//[^/@\s]*@")
_PLACEHOLDER = re.compile(r"\$\{([^}:]*):([^}]*)\}")


class KeyClass(Enum):
    """What became of a key of a file."""

    HONOURED = "honoured"
    WITHOUT_MEANING = "accepted without meaning here"
    REFUSED = "refused"


@dataclass(frozen=True)
class Finding:
    """One key of a file: its class, its value as written (secrets masked) and what it does here, or why it cannot."""

    key: str
    key_class: KeyClass
    value: str
    effect: str


class Sheet:
    """Judges the keys of one file by a table, then hands out the values of those that are honoured."""

    def __init__(self, table: KeyTable, entries: Mapping[str, SecretStr], env: Mapping[str, str]) -> None:
        self._entries = entries
        self._values: dict[str, SecretStr] = {}
        self._judged: dict[str, tuple[KeyClass, str]] = {}
        for name, written in entries.items():
            self._judge(table, name, written.get_secret_value(), env)

    def _judge(self, table: KeyTable, name: str, written: str, env: Mapping[str, str]) -> None:
        key = table.find(name)
        if key is None:
            near = table.nearest(name)
            self.refuse(name, "unknown key" + (f"; did you mean {near}?" if near else ""))
        elif key.support is Support.WITHOUT_MEANING:
            self.without_meaning(name, key.doc)
        else:
            try:
                self._judge_value(key, name, substitute(written, env).strip())
            except ValueError as err:
                self.refuse(name, str(err))

    def _judge_value(self, key: Key, name: str, value: str) -> None:
        if key.support is Support.HONOURED:
            self._judged[name] = (KeyClass.HONOURED, key.doc)
            self._values[name] = SecretStr(value)
        elif key.is_neutral(value):
            self.without_meaning(name, f"Asks for no more than is done anyway ({key.doc}).")
        else:
            self.refuse(name, f"{NOT_YET}: {key.doc}" if key.support is Support.NOT_YET else key.doc)

    def __contains__(self, name: str) -> bool:
        return bool(self.text(name))

    def text(self, name: str) -> str:
        """The value of an honoured key, empty where it is unset."""
        return self._values[name].get_secret_value() if name in self._values else ""

    def read(self, name: str, parse: Parser[T], default: T) -> T:
        """The parsed value; `default` where the key is unset, empty or refused."""
        if not (text := self.text(name)):
            return default
        try:
            return parse(text)
        except ValueError as err:
            self.refuse(name, str(err))
            return default

    def require(self, name: str, what: str) -> None:
        """Refuses the file where the key is unset or empty."""
        if name not in self and not self.is_refused(name):
            self.refuse(name, f"required: {what}")

    def under(self, prefix: str) -> dict[str, str]:
        """The honoured values below a prefix, without it."""
        return {name.removeprefix(prefix): self.text(name) for name in self._values if name.startswith(prefix)}

    def take(self, prefix: str, outcome: ClientOutcome) -> None:
        """Notes what became of the client properties below a prefix."""
        for key_class, names in (
            (KeyClass.HONOURED, outcome.honoured),
            (KeyClass.WITHOUT_MEANING, outcome.without_meaning),
            (KeyClass.REFUSED, outcome.refused),
        ):
            self._judged.update({prefix + name: (key_class, effect) for name, effect in names.items()})

    def refuse(self, name: str, reason: str) -> None:
        self._judged[name] = (KeyClass.REFUSED, reason)

    def without_meaning(self, name: str, reason: str) -> None:
        self._judged[name] = (KeyClass.WITHOUT_MEANING, reason)

    def is_refused(self, name: str) -> bool:
        return name in self._judged and self._judged[name][0] is KeyClass.REFUSED

    def findings(self) -> Iterator[Finding]:
        """Every key of the file, in its order, then the required ones that it lacks."""
        for name, (key_class, effect) in self._judged.items():
            written = self._entries[name].get_secret_value() if name in self._entries else ""
            yield Finding(name, key_class, masked(name, written), effect)


def substitute(text: str, env: Mapping[str, str]) -> str:
    """Replaces `${env:NAME}` wherever it stands. ValueError: the variable is unset, or the provider is another."""

    def value(match: re.Match[str]) -> str:
        provider, name = match.groups()
        if provider != "env":
            raise ValueError(f"the config provider {provider!r} is unknown; only ${{env:NAME}} is replaced")
        if name not in env:
            raise ValueError(f"the environment variable {name!r} is not set")
        return env[name]

    return _PLACEHOLDER.sub(value, text)


def is_secret(name: str) -> bool:
    """Whether a key's name says that its value must not be shown."""
    return _SECRET.search(name.casefold()) is not None


def masked(name: str, value: str) -> str:
    """The value as it may be shown: secrets and the credentials in URLs masked."""
    if value and is_secret(name):
        return MASK
    return _USER_INFO.sub(f"//{MASK}@", value)
