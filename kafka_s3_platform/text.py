"""Text of others on terminals and in logs: no key, name or message of theirs moves a cursor or makes a line of its own.

Errors, log records and lines of commands pass through here by themselves: `errors.PlatformError`, the package's own
import, and `cli.output`.
"""

import logging
import re
from typing import Any

PACKAGE = "kafka_s3_platform"

MASK = "****"
"""What is shown of a secret."""

_SHORTEST_SECRET = 4
"""What is shorter is in every text, and nobody's secret."""

_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, escape sequences among them, but tabs and ends of lines
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # which turn the direction of what follows
    r"\u2028\u2029\ud800-\udfff]"  # ends of lines to some, and halves of characters
)


def printable(text: str) -> str:
    """What can be written anywhere: unprintable characters become escapes. Ends of lines stay."""
    return _UNPRINTABLE.sub(_escaped, text)


def entry(text: str) -> str:
    """`printable`, with all lines but the first one indented, so that none can pass for an entry of its own."""
    return printable(text).replace("\n", "\n  ")


def without_value(text: str, value: str) -> str:
    """A text that may quote a secret, as it is or as Python quotes it, with a mask for it."""
    if len(value) < _SHORTEST_SECRET:
        return text
    return text.replace(value, MASK).replace(repr(value)[1:-1], MASK)


def guard_logs() -> None:
    """Make an `entry` of what this package logs, whoever handles it."""
    make = logging.getLogRecordFactory()

    def made(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        # `logging.makeLogRecord` gives no name at first
        if str(record.name).partition(".")[0] == PACKAGE:
            record.msg, record.args = entry(record.getMessage()), ()
        return record

    logging.setLogRecordFactory(made)


def _escaped(match: "re.Match[str]") -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
