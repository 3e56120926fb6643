"""Loads what the part `connect` adds to the core, which imports nothing from it.

The part lists its additions in `EXTENSIONS` in its `__init__`: for a name in the core, the object as
`module:attribute`. The module is imported at its first use. An installation without the part has no additions.
"""

import importlib
from functools import cache
from importlib.util import find_spec
from typing import Any

from kafka_s3_platform.core.errors import ConfigError

PARTS = ("kafka_s3_platform.connect",)


@cache
def load_extensions(name: str) -> tuple[Any, ...]:
    """Return the objects that the installed parts add under a name. Most names have one or none."""
    parts = [importlib.import_module(part) for part in PARTS if find_spec(part) is not None]
    return tuple(_load_object(part.EXTENSIONS[name]) for part in parts if name in part.EXTENSIONS)


def load_extension(name: str) -> Any:
    """Return the object that a part adds under a name. Raises ConfigError if no installed part adds one."""
    for extension in load_extensions(name):
        return extension
    raise ConfigError(f"{name} is added by {' or '.join(PARTS)}, which is not installed: install the whole package")


def find_addition(name: str, key: str) -> Any:
    """Return a key's entry in the tables added by installed parts under a name, or None if there is none."""
    return next((table[key] for table in load_extensions(name) if key in table), None)


def _load_object(place: str) -> object:
    """Import the module of `module:attribute`, and return the attribute."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)
