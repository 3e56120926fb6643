"""Makes names that Dagster accepts from names of Kafka, Connect and files."""

import os
import re


def make_op_name(*parts: str) -> str:
    """Make a name of letters, digits and `_`. Different parts give different names, `a.b` and `a_b` too."""
    return "__".join(re.sub("[^A-Za-z0-9]", _escape, part) for part in parts)


def _escape(character: re.Match[str]) -> str:
    # as the bytes that a file's name has, which may be no text
    return "".join(f"_{byte:02x}" for byte in os.fsencode(character[0]))
