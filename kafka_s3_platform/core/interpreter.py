"""Starts Python again for a part of the work that needs limits of its own, with no module but this process's own."""

import os
import sys
from pathlib import Path

FOLDER = str(Path(os.__file__).parent)
"""The folder that such a process works in: that of the standard library.

Python imports from its working directory first (`-m`, `-c`), and libraries read their settings there: a `resource.py`
that somebody left in the user's folder would run.
"""


def build_environment() -> dict[str, str]:
    """Return the variables for a process of Python that gets no others, which may be secret: where its modules are.

    Modules are where this process finds them, without its working directory, which it may have for the same reason. An
    installation in the working directory is found nevertheless.
    """
    here = Path.cwd()
    package_root = Path(__file__).parents[2]
    places = (Path(path).resolve() for path in sys.path if path)
    return {"PYTHONPATH": os.pathsep.join(str(place) for place in places if place != here or place == package_root)}
