"""Names that Dagster demands, made of names that Kafka and Connect allow."""

_ESCAPES = str.maketrans({"_": "_5f", ".": "_2e", "-": "_2d"})


def op_name(*parts: str) -> str:
    """One name of letters, digits and `_` for `parts`; different parts give different names (`a.b` and `a_b` too)."""
    return "__".join(part.translate(_ESCAPES) for part in parts)
