"""Makes foreign text safe for terminals and logs, so no key, name or message can move the cursor or add a line.

It also finds the name somebody probably meant, and takes users and passwords out of addresses.

All errors, log records and lines of commands pass through here: `errors.PlatformError`, the import of the package and
`cli.output` see to it.
"""

import difflib
import logging
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

PACKAGE = "kafka_s3_platform"

MASK = "****"
"""Shown instead of a secret."""

_SHORTEST_SECRET = 4
"""Shorter values are not masked, since almost every text contains them, and they are hardly secrets."""

_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, escape sequences among them, but tabs and ends of lines
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # which turn the direction of what follows
    r"\u2028\u2029\ud800-\udfff]"  # ends of lines to some, and halves of characters
)


def escape_unprintable(text: str) -> str:
    """Escape unprintable characters, so the text can be written anywhere. Line breaks stay."""
    return _UNPRINTABLE.sub(_escape_match, text)


def format_entry(text: str) -> str:
    """Return the text in printable form. Indent all lines but the first, so none looks like a separate entry."""
    return escape_unprintable(text).replace("\n", "\n  ")


def mask_value(text: str, value: str) -> str:
    """Mask a secret in a text, both as it is and as Python quotes it."""
    if len(value) < _SHORTEST_SECRET:
        return text
    return text.replace(value, MASK).replace(repr(value)[1:-1], MASK)


def format_size(count: int) -> str:
    """Return the bytes as `827 kB` or `1.2 GB`, in the decimal units used for stores and disks."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if size < 999.5 or unit == "PB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if size >= 9.95 or unit == "B" else f"{size:.1f} {unit}"


def count_noun(count: int, noun: str) -> str:
    """Return `1 topic` or `1,200 topics`; of two nouns, `2 objects or records`."""
    return f"{count:,} {noun if count == 1 else noun.replace(' or ', 's or ') + 's'}"


def make_anchor(heading: str) -> str:
    """Return a heading's name in links, as on GitHub: in lower case, with `-` for blanks, without other signs."""
    return re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")


def guard_logs() -> None:
    """Make all log records of this package printable, for every handler, since names and errors come from others."""
    make = logging.getLogRecordFactory()

    def made(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        # `logging.makeLogRecord` gives no name at first
        if str(record.name).partition(".")[0] == PACKAGE:
            record.msg = format_entry(record.getMessage())
            record.args = ()
        return record

    logging.setLogRecordFactory(made)


def _escape_match(match: "re.Match[str]") -> str:
    """Return the escape of a character, as Python writes it."""
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def find_nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the name closest to `word`, or None if none is close."""
    by_fold = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(word.casefold(), by_fold, 1)
    return by_fold[close[0]] if close else None


def strip_users(url: str) -> str:
    """Return the comma-separated addresses in `url`, each without its user and password."""
    parts = [urlsplit(address.strip()) for address in url.split(",")]
    return ",".join(f"{p.scheme}://{p.netloc.rpartition('@')[2]}{p.path}" for p in parts)
