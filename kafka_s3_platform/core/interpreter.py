"""Prepares a further Python process for work that needs limits of its own, with this process's modules only."""

import os
import sys
from pathlib import Path

FOLDER = str(Path(os.__file__).parent)
"""The working directory of such a process: the standard library.

Python imports from its working directory first (`-m`, `-c`), and libraries read their settings there, so a stray
`resource.py` in the user's folder would run.
"""


def build_environment() -> dict[str, str]:
    """Return the only environment variable for such a process: where its modules are. Others may be secret.

    The places are this process's, except for its working directory: Python may have added it, and stray modules in it
    would run. If this package is installed in the working directory, it is found nevertheless.
    """
    here = Path.cwd()
    package_root = Path(__file__).parents[2]
    places = (Path(path).resolve() for path in sys.path if path)
    return {"PYTHONPATH": os.pathsep.join(str(place) for place in places if place != here or place == package_root)}
