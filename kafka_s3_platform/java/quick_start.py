"""Options with which Java programs that live for minutes start in less time."""

import re

_KINDS = (
    # This must be the first option: an older, newer or other Java may not know one of those below.
    (r"IgnoreUnrecognizedVMOptions", "-XX:+IgnoreUnrecognizedVMOptions"),
    # Warnings go where they disturb nobody's output.
    (r"-Xlog", "-Xlog:disable -Xlog:all=warning:stderr"),
    # The quick compiler alone. To archive 4,000,000 records costs less with it (docs/bench.md).
    (r"-XX:(TieredStopAtLevel|[+-]TieredCompilation|CompilationMode)|-Xint|-Xcomp|JVMCI", "-XX:TieredStopAtLevel=1"),
    # Java does not start with two collectors.
    (r"-XX:[+-]Use\w*GC\b", "-XX:+UseSerialGC"),
)
"""What says in somebody's options that such an option was chosen, and ours."""


def choose_options(given: str) -> list[str]:
    """Return the options of a quick start, without those of a kind that the text `given` chooses."""
    return [option for kind, options in _KINDS if not re.search(kind, given) for option in options.split()]
