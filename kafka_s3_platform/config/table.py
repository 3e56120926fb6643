"""How the tables of keys are written down: a key, what is done with it, and how keys are found."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

NOT_YET = "known, not honoured by this version yet"


class Support(Enum):
    """What this version does with a key."""

    HONOURED = "honoured"
    WITHOUT_MEANING = "accepted without meaning here"
    NOT_YET = NOT_YET
    REFUSED = "refused"


@dataclass(frozen=True)
class Key:
    """A key, or a family of keys where `name` ends in `.*`.

    `neutral` are the values of an unsupported key that ask for nothing beyond what is done anyway: they are accepted
    without meaning, so that a file which spells out Connect's defaults loads. `alias_of` is the key that this one is
    another name of: its value is read under that key's name.
    """

    name: str
    support: Support
    doc: str
    default: str | None = None
    neutral: tuple[str, ...] = ()
    alias_of: str | None = None

    @property
    def is_family(self) -> bool:
        return self.name.endswith(".*")

    def is_neutral(self, value: str) -> bool:
        """Whether `value` asks for nothing that is missing here."""
        return value.strip().casefold() in {known.casefold() for known in self.neutral}


class KeyTable:
    """Looks keys up by exact name, else by the longest family they belong to."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._exact = {key.name: key for key in keys}
        self._families = sorted((key.name for key in self._exact.values() if key.is_family), key=len, reverse=True)

    def find(self, name: str) -> Key | None:
        if name in self._exact:
            return self._exact[name]
        family = next((family for family in self._families if name.startswith(family[:-1])), None)
        return None if family is None else self._exact[family]

    def nearest(self, name: str) -> str | None:
        """The known key that `name` is most likely meant to be."""
        return nearest(name, (known for known in self._exact if not known.endswith(".*")))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of `known` closest to `word`, or None where none is close."""
    by_fold = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(word.casefold(), by_fold, 1)
    return by_fold[close[0]] if close else None


def honoured(name: str, default: str | None, doc: str) -> Key:
    """A key that does something here."""
    return Key(name, Support.HONOURED, doc, default)


def alias(name: str, of: str, whose: str) -> Key:
    """Another name of the key `of`, in the words of the tool `whose`."""
    return Key(name, Support.HONOURED, f"{whose} name of `{of}`.", alias_of=of)


def without_meaning(doc: str, *names: str) -> tuple[Key, ...]:
    """Keys that may stand in a file and change nothing."""
    return tuple(Key(name, Support.WITHOUT_MEANING, doc) for name in names)


def not_yet(name: str, doc: str, *neutral: str) -> Key:
    """A key of later versions: any value but the `neutral` ones refuses the file."""
    return Key(name, Support.NOT_YET, doc, neutral=neutral)


def refused(name: str, doc: str, *neutral: str) -> Key:
    """A key that nothing here can honour: any value but the `neutral` ones refuses the file."""
    return Key(name, Support.REFUSED, doc, neutral=neutral)


REQUIRED = "required"
"""The `default` of a key without which a file does not load."""
