"""The keys of one file, judged one by one, so that a file's errors are all told at once."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from pydantic import SecretStr

from kafka_s3_platform.config.clients import ClientOutcome
from kafka_s3_platform.config.table import NOT_YET, Key, KeyTable, Support
from kafka_s3_platform.config.values import Parser
from kafka_s3_platform.text import MASK, without_value

T = TypeVar("T")

_SECRET = re.compile(
    r"secret|password|passwd|passphrase|pwd|token|credential|jaas|licen[sc]e|user\.info|username"
    r"|(access|api)[._]?key|key[._]?id|\.pem$|keystore\.key$|private|customer\.key|external\.id|proxy\.user$"
)
_OF_CREDENTIALS = re.compile(r"credentials\.(source|provider|provider\.class)$")
"""Keys that say where credentials come from, and hold none."""

_USER_INFO = re.compile(r"(//)?(?(1).*|[^\s/,]+:(?!//).*)@", re.DOTALL)
"""What stands before a host, also where a password has characters that no URL may have."""

_QUOTED = re.compile(r"""'([^']+)'|"([^"]+)\"""")
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
    is_known: bool = True


class Sheet:
    """Judges the keys of one file by a table, then hands out the values of those that are honoured.

    A key that is another name of one is read, and refused, by the name of that one; findings keep it as it is written.
    What a key holds that is not known by its own name may be a secret, mistyped or a plug-in's: findings mask it.
    """

    def __init__(self, table: KeyTable, entries: Mapping[str, SecretStr], env: Mapping[str, str]) -> None:
        self._entries = entries
        self._values: dict[str, SecretStr] = {}
        self._judged: dict[str, tuple[KeyClass, str]] = {}
        self._aliases: dict[str, str] = {}
        self._hidden: set[str] = set()
        self._resolved: dict[str, SecretStr] = {}
        for name, written in entries.items():
            self._judge(table, name, written.get_secret_value(), env)

    def _judge(self, table: KeyTable, name: str, written: str, env: Mapping[str, str]) -> None:
        key = table.find(name)
        if key is None or key.is_family:
            self._hidden.add(name)
        if key is None:
            near = table.nearest(name)
            self.refuse(name, "unknown key" + (f"; did you mean {near}?" if near else ""))
        elif key.support is Support.WITHOUT_MEANING:
            self.without_meaning(name, key.doc)
        else:
            self._aliases.setdefault(key.alias_of or name, name)
            try:
                value = substitute(written, env).strip()
                self._resolved[name] = SecretStr(value)
                self._judge_value(key, name, value)
            except ValueError as err:
                self.refuse(name, str(err))

    def _judge_value(self, key: Key, name: str, value: str) -> None:
        if key.support is Support.HONOURED:
            self._judged[name] = (KeyClass.HONOURED, key.doc)
            self._set(key.alias_of or name, name, value)
        elif key.is_neutral(value):
            self.without_meaning(name, f"Asks for no more than is done anyway ({key.doc}).")
        else:
            self.refuse(name, f"{NOT_YET}: {key.doc}" if key.support is Support.NOT_YET else key.doc)

    def _set(self, name: str, written: str, value: str) -> None:
        if value and name in self:
            self._judged[written] = (KeyClass.REFUSED, f"{self.written(name)} sets the same; keep one")
        elif value or name not in self._values:
            self._values[name] = SecretStr(value)
            self._aliases[name] = written

    def __contains__(self, name: str) -> bool:
        return bool(self.text(name))

    def written(self, name: str) -> str:
        """The key as the file has it, which may say it by another name."""
        return self._aliases.get(name, name)

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

    def require_both(self, one: str, other: str) -> None:
        """Refuses the file where one of two keys stands without the other."""
        if (one in self) != (other in self):
            present, absent = (one, other) if one in self else (other, one)
            if not self.is_refused(absent):
                self.refuse(absent, f"required: {self.written(present)} is set, and is of no use without it")

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
            self.show(prefix + name for name in names.keys() - outcome.unknown)

    def refuse(self, name: str, reason: str) -> None:
        self._judged[self.written(name)] = (KeyClass.REFUSED, reason)

    def without_meaning(self, name: str, reason: str) -> None:
        self._judged[self.written(name)] = (KeyClass.WITHOUT_MEANING, reason)

    def leave(self, names: Iterable[str], reason: str) -> None:
        """Notes of those keys that are set that they change nothing."""
        for name in names:
            if name in self:
                self.without_meaning(name, reason)

    def show(self, names: Iterable[str]) -> None:
        """Says of keys of a family that they are known, and that their values may be shown."""
        self._hidden.difference_update(names)

    def is_refused(self, name: str) -> bool:
        found = self._judged.get(self.written(name))
        return found is not None and found[0] is KeyClass.REFUSED

    def findings(self) -> Iterator[Finding]:
        """Every key of the file, in its order, then the required ones that it lacks."""
        for name, (key_class, effect) in self._judged.items():
            written = self._entries[name].get_secret_value() if name in self._entries else ""
            is_known = name not in self._hidden
            shown = masked(name, written) if is_known or not written else MASK
            yield Finding(name, key_class, shown, self._told(effect, name, is_shown=shown == written), is_known)

    def _told(self, effect: str, name: str, *, is_shown: bool) -> str:
        """What is said of a key: of a value that is not shown, it says no part."""
        if name in self._resolved and (not is_shown or _PLACEHOLDER.search(self._entries[name].get_secret_value())):
            return without(effect, self._resolved[name].get_secret_value())
        return effect


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
    folded = name.casefold()
    return _SECRET.search(folded) is not None and _OF_CREDENTIALS.search(folded) is None


def masked(name: str, value: str) -> str:
    """The value as it may be shown: secrets and the credentials in URLs masked."""
    if value and is_secret(name):
        return MASK
    return _USER_INFO.sub(lambda found: f"{found[1] or ''}{MASK}@", value)


def without(text: str, value: str) -> str:
    """A text that may quote a value, or a part of it, without that."""

    def quoted(found: re.Match[str]) -> str:
        inner = found[1] or found[2]
        return found[0].replace(inner, MASK) if inner.replace("\\\\", "\\") in value else found[0]

    return without_value(_QUOTED.sub(quoted, text), value)
