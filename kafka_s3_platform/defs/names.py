"""Names that Dagster demands, made of names that Kafka, Connect and files have."""

import os
import re


def op_name(*parts: str) -> str:
    """One name of letters, digits and `_` for `parts`; different parts give different names (`a.b` and `a_b` too)."""
    return "__".join(re.sub("[^A-Za-z0-9]", _escaped, part) for part in parts)


def _escaped(character: re.Match[str]) -> str:
    # as the bytes that a file's name has, which may be no text
    return "".join(f"_{byte:02x}" for byte in os.fsencode(character[0]))
