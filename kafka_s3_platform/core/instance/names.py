"""Turns names of Kafka, Connect and files into names for Dagster, made of letters, digits and `_`."""

import os
import re

SEPARATOR = "__"
_RESTORE_POOL_END = "/restore"
_ORDINARY = re.compile("[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
_MARK = "___"
_CODES = {"-": "d", "_": "u", ".": "p"}


def make_op_name(*parts: str) -> str:
    """Make one name of several, by joining the results of `make_name` with `__`.

    Different parts give different names: a result of `make_name` holds `__` only if it has a suffix. The suffix has a
    code for each character before it other than letters and digits, so a name can be read from its end.
    """
    return SEPARATOR.join(map(make_name, parts))


def name_restore_pool(connector: str) -> str:
    """Return the name of the pool of the connector's restores. `is_restore_pool` knows it."""
    return connector + _RESTORE_POOL_END


def is_restore_pool(pool: str) -> bool:
    """Return True if a pool is of the restores of some connector. No connector's name holds a slash."""
    return pool.endswith(_RESTORE_POOL_END)


def make_name(name: str) -> str:
    """Make a name that depends on `name` alone, and differs from the name of any other.

    Each character other than a letter or digit becomes `_`: `orders-s3-sink` is `orders_s3_sink`. If any but single
    dashes between letters and digits are among them, a suffix lists them: `a.b` is `a_b___p`, `a_b` is `a_b___u`.
    """
    plain = re.sub("[^A-Za-z0-9]", "_", os.fsencode(name).decode("latin-1"))
    if _ORDINARY.fullmatch(name):
        return plain
    return plain + _MARK + "".join(_encode(character) for character in re.findall("[^A-Za-z0-9]", name))


def _encode(character: str) -> str:
    """Return the code of a character in a name's suffix."""
    # the bytes of a file's name, which may be no text; each is one `_`
    return _CODES.get(character) or "".join(f"x{byte:02x}" for byte in os.fsencode(character))
