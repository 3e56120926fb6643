"""Makes names that Dagster accepts from names of Kafka, Connect and files: of letters, digits and `_`."""

import os
import re

SEPARATOR = "__"
_ORDINARY = re.compile("[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
_MARK = "___"
_CODES = {"-": "d", "_": "u", ".": "p"}


def make_op_name(*parts: str) -> str:
    """Make one name of several: each as `make_name` makes it, with `__` between them.

    Different parts give different names: what `make_name` returns has `__` in it only with its suffix, which tells how
    many characters before it are other than letters and digits. So a name can be read from its end.
    """
    return SEPARATOR.join(map(make_name, parts))


def make_name(name: str) -> str:
    """Make a name that depends on `name` alone, and that no other name gets.

    Each character other than a letter or digit becomes `_`: `orders-s3-sink` is `orders_s3_sink`. If the name has any
    but single dashes between letters and digits, a suffix tells them: `a.b` is `a_b___p`, `a_b` is `a_b___u`.
    """
    plain = re.sub("[^A-Za-z0-9]", "_", os.fsencode(name).decode("latin-1"))
    if _ORDINARY.fullmatch(name):
        return plain
    return plain + _MARK + "".join(_encode(character) for character in re.findall("[^A-Za-z0-9]", name))


def _encode(character: str) -> str:
    # as the bytes that a file's name has, which may be no text; each is one `_`
    return _CODES.get(character) or "".join(f"x{byte:02x}" for byte in os.fsencode(character))
