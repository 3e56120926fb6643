"""Judges the keys of one file one by one, to report all its errors together."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import SecretStr

from kafka_s3_platform.connect.config.config_providers import ConfigProviders, has_variable
from kafka_s3_platform.connect.config.keys.clients import ClientOutcome
from kafka_s3_platform.connect.config.keys.table import NOT_YET, Key, KeyTable, Support, TypedKey, keys_by_field
from kafka_s3_platform.connect.config.keys.values import Parser
from kafka_s3_platform.core.config.settings import Settings
from kafka_s3_platform.core.text import MASK, mask_value

T = TypeVar("T")
Other = TypeVar("Other")
Filled = TypeVar("Filled", bound=Settings)

_SECRET = re.compile(
    r"secret|password|passwd|passphrase|pwd|token|credential|jaas|licen[sc]e|user\.info|username"
    r"|(access|api)[._]?key|key[._]?id|\.pem$|keystore\.key$|private|customer\.key|external\.id|proxy\.user$"
)
_OF_CREDENTIALS = re.compile(r"credentials\.(source|provider|provider\.class)$")
"""Keys whose names look secret, but whose values only tell where credentials come from."""

_AFTER_USER = re.compile(r"(?<=[^\s/,]):(?!//)")

_QUERY = re.compile(r"[?#]")
"""The start of a URL's query or fragment, which may hold a secret."""

_QUOTED = re.compile(r"""'([^']+)'|"([^"]+)\"""")


@dataclass(frozen=True)
class KeyFinding:
    """A key of a file: its judgement, its value as written (secrets are masked), and its effect or why it has none."""

    key: str
    support: Support
    value: str
    effect: str
    is_known: bool = True


class ConfigFile:
    """The keys of a connector file or of worker.properties.

    Each key is judged by a table first, then by the code that reads it. A refused key has no value from then on.
    Reading continues, so all errors of the file are reported together (`findings`). An alias is read and refused under
    the name of the key it stands for. Findings show the alias as it is written in the file. If the table does not list
    a key by its full name, its value may be a secret, since the key may be mistyped or belong to a plug-in. Findings
    mask it.
    """

    def __init__(self, table: KeyTable, entries: Mapping[str, SecretStr], providers: ConfigProviders) -> None:
        self._entries = entries
        self._table = table
        self._values: dict[str, SecretStr] = {}
        self._judged: dict[str, tuple[Support, str]] = {}
        self._aliases: dict[str, str] = {}
        self._hidden: set[str] = set()
        self._resolved: dict[str, SecretStr] = {}
        for name, written in entries.items():
            self._judge(name, written.get_secret_value(), providers)

    def _judge(self, name: str, written: str, providers: ConfigProviders) -> None:
        """Judge a key by the table, after replacing the variables in `written`, its value in the file."""
        key = self._table.find(name)
        if key is None or key.is_family:
            self._hidden.add(name)
        if key is None:
            self.refuse(name, self._table.explain_unknown(name))
        elif key.support is Support.WITHOUT_MEANING:
            self.ignore(name, key.doc)
        else:
            self._aliases.setdefault(key.alias_of or name, name)
            try:
                value = providers.replace(written)
                value = value if key.keeps_blanks else value.strip() or key.blank
                self._resolved[name] = SecretStr(value)
                self._judge_value(key, name, value)
            except ValueError as err:
                self.refuse(name, str(err))

    def _judge_value(self, key: Key, name: str, value: str) -> None:
        """Keep the value of an honoured key. Refuse an unsupported key, unless its value asks for nothing."""
        if key.support is Support.HONOURED:
            self._judged[name] = (Support.HONOURED, key.doc)
            self._set_value(key.alias_of or name, name, value)
        elif key.is_neutral(value):
            self.ignore(name, f"Asks for nothing beyond what happens anyway ({key.doc}).")
        else:
            self.refuse(name, f"{NOT_YET}: {key.doc}" if key.support is Support.NOT_YET else key.doc)

    def _set_value(self, name: str, written: str, value: str) -> None:
        """Set the value of the key `name`, which is `written` in the file. Refuse a second name of the same key."""
        if value and name in self:
            self._judged[written] = (Support.REFUSED, f"{self.name_in_file(name)} sets the same; keep one")
        elif value or name not in self._values:
            self._values[name] = SecretStr(value)
            self._aliases[name] = written

    def __contains__(self, name: str) -> bool:
        return bool(self.text(name))

    def name_in_file(self, name: str) -> str:
        """Return the name of a key in the file: its own name or an alias."""
        return self._aliases.get(name, name)

    def text(self, name: str) -> str:
        """Return the value of an honoured key, or "" if it is not set."""
        if name in self._values:
            return self._values[name].get_secret_value()
        return ""

    def value(self, key: TypedKey[T]) -> T:
        """Return the value of a key, or its default if it is unset, empty or refused."""
        return self.read(key.name, key.parse, key.unset)

    def value_or(self, key: TypedKey[T], default: Other) -> T | Other:
        """Return the value of a key, or this default."""
        return self.read(key.name, key.parse, default)

    def fill(self, settings: type[Filled], **fields: object) -> Filled:
        """Return settings with these `fields`. Every other field is read from its key, if it has one."""
        values_by_field = dict(fields)
        for name, key in keys_by_field(settings).items():
            if name not in fields:
                values_by_field[name] = self.value(key)
        return settings.model_validate(values_by_field)

    def read(self, name: str, parse: Parser[T], default: Other) -> T | Other:
        """Return the parsed value, or `default` if the key is unset, empty or refused."""
        if not (text := self.text(name)):
            return default
        try:
            return parse(text)
        except ValueError as err:
            self.refuse(name, str(err))
            return default

    def require(self, name: str, what: str, own_names: Collection[str] = ()) -> None:
        """Refuse the file if the key is unset or empty. Name the key by its alias in `own_names`, if there is one."""
        if name not in self and not self.is_refused(name):
            keys = filter(None, map(self._table.find, own_names))
            self.refuse(next((key.name for key in keys if key.alias_of == name), name), f"required: {what}")

    def require_both(self, one: str, other: str) -> None:
        """Refuse the file if only one of two keys is set."""
        if (one in self) != (other in self):
            present, absent = (one, other) if one in self else (other, one)
            if not self.is_refused(absent):
                self.refuse(absent, f"required: {self.name_in_file(present)} is set, and is of no use without it")

    def read_prefix(self, prefix: str) -> dict[str, str]:
        """Return the values of all honoured keys with a prefix, by their names without the prefix."""
        return {name.removeprefix(prefix): self.text(name) for name in self._values if name.startswith(prefix)}

    def add_outcome(self, prefix: str, outcome: ClientOutcome, bare: Collection[str] = ()) -> None:
        """Take over the judgements of properties or options whose keys have this prefix, except for the `bare` ones."""
        names = {name: name if name in bare else prefix + name for name in outcome.judgements}
        self._judged.update({names[name]: judgement for name, judgement in outcome.judgements.items()})
        self.mark_known(names[name] for name in names.keys() - outcome.unknown)

    def refuse(self, name: str, reason: str) -> None:
        """Refuse a key, and with it the file. In the report, `reason` follows the key's name."""
        self._judged[self.name_in_file(name)] = (Support.REFUSED, reason)

    def refuse_if_set(self, names: Iterable[str], reason: str) -> None:
        """Refuse each of these keys that the file sets."""
        for name in names:
            if name in self:
                self.refuse(name, reason)

    def find_first_set(self, *names: str) -> str:
        """Return the first of these keys set in the file, or the first of all if none is set."""
        return next((name for name in names if name in self), names[0])

    def ignore(self, name: str, reason: str) -> None:
        """Accept a key without effect, for this reason. From now on it has no value."""
        self._judged[self.name_in_file(name)] = (Support.WITHOUT_MEANING, reason)
        self._values.pop(name, None)

    def ignore_if_set(self, names: Iterable[str], reason: str) -> None:
        """Accept each of these keys that the file sets, without effect."""
        for name in names:
            if name in self:
                self.ignore(name, reason)

    def ignore_sink_keys(self) -> None:
        """Accept the keys that concern the writing of objects, without effect, in the file of a source connector."""
        self.ignore_if_set(self._table.for_sinks, "Belongs to writing: a source connector reads objects as they are.")

    def mark_known(self, names: Iterable[str]) -> None:
        """Mark keys as known, though the table has only their family. Findings then show their values."""
        self._hidden.difference_update(names)

    def is_refused(self, name: str) -> bool:
        """Return True if a key has been refused so far."""
        judgement = self._judged.get(self.name_in_file(name))
        return judgement is not None and judgement[0] is Support.REFUSED

    def try_reading(self, read: Callable[[], T]) -> tuple[T, dict[str, str]]:
        """Call `read`. Return its result, and the keys it refused, with the reasons.

        If it refused any, all its judgements are taken back, and the file is as it was before.
        """
        judged_before = dict(self._judged)
        values_before = dict(self._values)
        result = read()
        refused = {
            name: reason
            for name, (support, reason) in self._judged.items()
            if support is Support.REFUSED and judged_before.get(name) != (support, reason)
        }
        if refused:
            self._judged = judged_before
            self._values = values_before
        return result, refused

    def findings(self) -> Iterator[KeyFinding]:
        """Yield a finding for every key of the file, in its order, then for the required keys it lacks."""
        for name, (support, effect) in self._judged.items():
            written = self._entries[name].get_secret_value() if name in self._entries else ""
            is_known = name not in self._hidden
            shown = mask_shown(name, written) if is_known or not written else MASK
            # The effect may quote the value, which is a secret if it is masked or comes from a variable.
            is_secret_value = name in self._resolved and (shown != written or has_variable(written))
            masked_effect = mask_quoted(effect, self._resolved[name].get_secret_value()) if is_secret_value else effect
            yield KeyFinding(name, support, shown, masked_effect, is_known)


def is_secret(name: str) -> bool:
    """Return True if a key's value is secret, judging by its name."""
    folded = name.casefold()
    return _SECRET.search(folded) is not None and _OF_CREDENTIALS.search(folded) is None


def mask_shown(name: str, value: str) -> str:
    """Return the value as it may be shown. Secrets, and the credentials and queries of URLs, are masked."""
    if value and is_secret(name):
        return MASK
    if "://" in value or name.endswith(("url", "endpoint")):
        # a user's password may hold a ? or # too, and is masked as a whole
        query = _QUERY.search(value, value.rfind("@") + 1)
        value = f"{value[: query.end()]}{MASK}" if query else value
    return _mask_user_info(value)


def _mask_user_info(value: str) -> str:
    """Mask the credentials before a host, even if a password has characters not allowed in a URL.

    The credentials begin after `//`, or with the user's name before a colon, and end at the last `@`. No regex finds
    them in linear time.
    """
    end = value.rfind("@")
    slashes = value.find("//", 0, max(end, 0))
    colon = _AFTER_USER.search(value, 0, max(end, 0))
    begins = [slashes + 2] if slashes >= 0 else []
    if colon is not None:
        at = colon.start()
        while at and value[at - 1] not in "/," and not value[at - 1].isspace():
            at -= 1
        begins.append(at)
    return f"{value[: min(begins)]}{MASK}{value[end:]}" if begins else value


def mask_quoted(text: str, value: str) -> str:
    """Mask the value, and each quoted part of it, in a text."""

    def quoted(match: re.Match[str]) -> str:
        inner = match[1] or match[2]
        if inner.replace("\\\\", "\\") in value:
            return match[0].replace(inner, MASK)
        return match[0]

    return mask_value(_QUOTED.sub(quoted, text), value)
