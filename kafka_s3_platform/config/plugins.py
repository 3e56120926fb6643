"""Plug-ins: Python classes and functions of others, by dotted name. Here alone it is decided which may be loaded.

To import a module is to run it, and so is to call a class. Connector files and the config of a run come from people
who may do neither, so a name in one of them loads nothing by itself: the installation has to allow it, by an entry
point or by the environment of the deployment.
"""

import importlib
import os
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from inspect import signature
from typing import Any, cast

from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.text import without_value

VARIABLE = "KAFKA_S3_PLUGINS"
"""Names of modules, separated by commas: each allows what is in the module and in those below it."""

ENTRY_POINTS = "kafka_s3_platform.plugins"
"""The entry point group: `my_package.module` allows as the variable does, `my_package.module:MyClass` that class."""


@dataclass(frozen=True)
class Kind:
    """A kind of plug-in: the key that names one, and the methods of its class, in one of several sets."""

    key: str
    contracts: tuple[tuple[str, ...], ...]

    def is_met_by(self, found: type) -> bool:
        return any(all(callable(getattr(found, name, None)) for name in names) for names in self.contracts)

    @property
    def methods(self) -> str:
        return ", or ".join(" and ".join(f"{name}()" for name in names) for names in self.contracts)


MAPPER = Kind("transforms.<alias>.type", (("apply",),))
PARTITIONER = Kind("partitioner.class", (("encode",),))
FOLDERS = Kind("partitioner.class", (("encode",), ("folder",)))
"""A source's partitioner need only read the folders of others."""
TIMESTAMP_EXTRACTOR = Kind("timestamp.extractor", (("extract",),))
FORMAT_WRITER = Kind("format.class", (("write", "close"),))
FORMAT_READER = Kind("format.class", (("read",),))
FORMAT = Kind("format.class", (*FORMAT_WRITER.contracts, *FORMAT_READER.contracts))
CREDENTIALS_PROVIDER = Kind("s3.credentials.provider.class", (("credentials",),))
KAFKA_PARTITIONER = Kind("--partitioning (partitioning)", (("kafka_partitions",),))


def allowance() -> tuple[str, ...]:
    """The dotted names that may be loaded: modules with all that is below them, and single classes and functions."""
    named = {name.strip() for name in os.environ.get(VARIABLE, "").split(",")}
    return tuple(sorted({*named, *_installed()} - {""}))


def load_class(dotted: str, kind: Kind) -> Any:
    """The class that a dotted name such as `my_package.my_module.MyClass` stands for. Nothing of it is called.

    Raises:
        ConfigError: it is not allowed, cannot be imported, is no class, or is of another kind.
    """
    where = f"'{dotted}', named by {kind.key}"
    found = _found(dotted, where)
    if not isinstance(found, type):
        raise ConfigError(f"{where}: {_place(dotted, found, 'class')}")
    if not kind.is_met_by(found):
        raise ConfigError(f"{where}, is no class for that key: it has to have {kind.methods}")
    return found


def load_function(dotted: str, option: str) -> Callable[..., Any]:
    """The function of one argument that a dotted name stands for; `option` named it. It is not called.

    Raises:
        ConfigError: it is not allowed, cannot be imported, or is no such function.
    """
    where = f"'{dotted}', named by {option}"
    found = _found(dotted, where)
    if isinstance(found, type) or not callable(found):
        raise ConfigError(f"{where}: {_place(dotted, found, 'function')}")
    if not _takes_one(found):
        raise ConfigError(f"{where}, is no function for that: it has to take one argument, a pyarrow.RecordBatch")
    return cast("Callable[..., Any]", found)


def without_options(text: str, options: Iterable[str]) -> str:
    """What a plug-in says, without the values of its options: they may be secrets, and others read what it says."""
    # the longest first: one may be a part of another
    for value in sorted(options, key=len, reverse=True):
        text = without_value(text, value)
    return text


def chained(error: BaseException, options: Iterable[str]) -> BaseException | None:
    """The error of a plug-in as a cause, None where it or a cause of its own shows an option: tracebacks hold it."""
    told = "".join(traceback.format_exception(error))
    return error if without_options(told, options) == told else None


def _takes_one(function: Callable[..., object]) -> bool:
    """Whether it can be called with one argument; what does not tell is believed."""
    try:
        signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _found(dotted: str, where: str) -> object:
    """The attribute, None where there is none."""
    module_name, _, name = dotted.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in dotted.split(".")):
        raise ConfigError(f"{where}, is no dotted Python name, such as my_package.my_module.MyClass")
    allowed = allowance()
    if not _is_within(dotted, allowed):
        raise ConfigError(f"{where}, is no plug-in that this installation allows: {_advice(allowed)}")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the user's module runs: whatever it raises is a fault of the file that names it
        raise ConfigError(
            f"{where}: cannot import the module {module_name}: {type(error).__name__}: {error}; it must be on the "
            "Python path of the driver and of each Spark executor"
        ) from error
    found = getattr(module, name, None)
    home = getattr(found, "__module__", None)
    # What an allowed module has imported for itself, such as Popen, is not therefore a plug-in.
    if callable(found) and dotted not in allowed and not (isinstance(home, str) and _is_within(home, allowed)):
        raise ConfigError(
            f"{where}, is of the module {home}, which this installation does not allow: {_advice(allowed)}"
        )
    return found


def _is_within(dotted: str, allowed: tuple[str, ...]) -> bool:
    return any(dotted == name or dotted.startswith(f"{name}.") for name in allowed)


def _advice(allowed: tuple[str, ...]) -> str:
    return (
        f"it allows {', '.join(allowed) or 'none'}. If the module is to be trusted, name it in the environment variable"
        f" {VARIABLE} of Dagster's processes and of the command line, or in its distribution's entry point group"
        f" {ENTRY_POINTS}"
    )


def _place(dotted: str, found: object, wanted: str) -> str:
    module_name, _, name = dotted.rpartition(".")
    wrong = "has no" if found is None else f"has {type(found).__name__}, not a {wanted}, as its"
    return f"the module {module_name} {wrong} attribute {name}"


@cache
def _installed() -> frozenset[str]:
    """What installed distributions declare. They do not change while a process lasts."""
    return frozenset(point.value.split("[")[0].strip().replace(":", ".") for point in entry_points(group=ENTRY_POINTS))
