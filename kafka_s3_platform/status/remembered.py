"""Files in Dagster's home in which sensors remember answers: loading the definitions asks nobody."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any


def find_memory(name: str, env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder `name` of remembered files. It is in Dagster's home, or without one in `.dagster` here."""
    return Path(env.get("DAGSTER_HOME") or ".dagster") / name


def write_remembered(path: Path, document: Any) -> None:
    """Write a JSON file as a whole or not at all: other processes may read it at any time. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
        json.dump(document, file, indent=2)
    Path(file.name).replace(path)
