"""Options with which Java programs of short life start in less time, and class data: the classes of one, loaded before.

Java reads class data (CDS, class data sharing) only if it fits this very Java and class path, and otherwise silently
starts without. So its file is named by a digest of these.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

_KINDS = (
    # This must be the first option: an older, newer or other Java may not know one of those below.
    (r"IgnoreUnrecognizedVMOptions", "-XX:+IgnoreUnrecognizedVMOptions"),
    # Warnings, such as that class data does not fit, go where they disturb nobody's output.
    (r"-Xlog", "-Xlog:disable -Xlog:all=warning:stderr"),
    # The quick compiler alone. To archive 4,000,000 records costs less with it (docs/bench.md).
    (r"-XX:(TieredStopAtLevel|[+-]TieredCompilation|CompilationMode)|-Xint|-Xcomp|JVMCI", "-XX:TieredStopAtLevel=1"),
    # Java does not start with two collectors.
    (r"-XX:[+-]Use\w*GC\b", "-XX:+UseSerialGC"),
)
"""What says in somebody's options that such an option was chosen, and ours."""

_OWN_CLASS_DATA = re.compile(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit|SharedClassListFile|AutoCreateShared")

FOLDER = Path(sys.prefix, "share", "kafka-s3")
"""Where class data is: in this Python's environment, which only those may write whose code it runs anyway."""


def choose_options(user_options: str, class_data: Path | None = None) -> list[str]:
    """Return the options of a quick start, without the kinds in the text `user_options`.

    `class_data` is left out as well if this user cannot read it, or if Java would take its path for two.
    """
    chosen = [option for kind, options in _KINDS if not re.search(kind, user_options) for option in options.split()]
    usable = class_data is not None and os.access(class_data, os.R_OK) and os.pathsep not in str(class_data)
    if usable and not _OWN_CLASS_DATA.search(user_options):
        chosen.append(f"-XX:SharedArchiveFile={class_data}")
    return chosen


def name_class_data(java: Path, jars: Iterable[Path], program: str = "spark", folder: Path | None = None) -> Path:
    """Return the path of a program's class data, which may not exist. Another Java or jar is another path.

    It is in `FOLDER`, unless another `folder` is named. Only users trusted to run code here may write to it.
    """
    home = java.resolve().parents[1]
    parts = [java.resolve(), home / "release", *(home / "lib" / name for name in ("modules", "server/classes.jsa"))]
    made_of = "\n".join([*map(str, _KINDS), *map(_describe_file, [*parts, *sorted(jars)])])
    return (folder or FOLDER) / f"{program}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jsa"


def _describe_file(path: Path) -> str:
    """Return the attributes of a file compared by Java. An image keeps times in whole seconds."""
    if not path.exists():
        return f"{path} is missing"
    status = path.stat()
    return f"{path} {status.st_size} {int(status.st_mtime)}"


def remove_others(current: Path) -> None:
    """Remove the program's class data made of something else."""
    for path in current.parent.glob(f"{current.name.partition('-')[0]}-*.jsa"):
        if path != current:
            path.unlink(missing_ok=True)
