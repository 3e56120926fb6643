"""Loads plug-ins, which are Python classes and functions of users, by dotted name. Only this module allows them.

Importing a module runs its code. Authors of connector files or of a run's config may not be allowed to run code. A name
in such a document therefore loads nothing by itself: the installation has to allow it, by an entry point or by the
environment of the deployment.
"""

import importlib
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from inspect import signature
from typing import Any, cast

from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.errors import ConfigError, PermanentError, PlatformError, TransientError
from kafka_s3_platform.core.text import mask_value

VARIABLE = environment.PLUGINS
"""The environment variable that lists module names, separated by commas. Each allows the module and all below it."""

ENTRY_POINTS = "kafka_s3_platform.plugins"
"""The entry point group. `my_package.module` allows the module, as the variable does; `my_package.module:MyClass`
allows that class.
"""


@dataclass(frozen=True)
class Kind:
    """A kind of plug-in, which is named under `key`. Its class has all methods of at least one of the `contracts`."""

    key: str
    contracts: tuple[tuple[str, ...], ...]

    def is_met_by(self, class_: type) -> bool:
        """Return True if a class has all methods of one of the contracts."""
        return any(all(callable(getattr(class_, name, None)) for name in names) for names in self.contracts)

    @property
    def methods(self) -> str:
        """The methods required of a class, for messages."""
        return ", or ".join(" and ".join(f"{name}()" for name in names) for names in self.contracts)


MAPPER = Kind("transforms.<alias>.type", (("apply",),))
PARTITIONER = Kind("partitioner.class", (("encode",),))
FOLDERS = Kind("partitioner.class", (("encode",), ("folder",)))
"""A source's partitioner may only have `folder`, which reads existing folders."""
TIMESTAMP_EXTRACTOR = Kind("timestamp.extractor", (("extract",),))
CONVERTER = Kind("key.converter or value.converter", (("to_connect_data",),))
KEY_LAYOUT = Kind("archive.key.layout", (("key", "parse"), ("read",)))
FORMAT_WRITER = Kind("format.class", (("write", "close"),))
FORMAT_READER = Kind("format.class", (("read",),))
FORMAT = Kind("format.class", (*FORMAT_WRITER.contracts, *FORMAT_READER.contracts))
CREDENTIALS_PROVIDER = Kind("s3.credentials.provider.class", (("credentials",),))
HEALTH_CHECK = Kind("--check", (("find_reasons",),))
KAFKA_PARTITIONER = Kind("--partitioning (to.partitioning)", (("kafka_partitions",),))


def read_allowance() -> tuple[str, ...]:
    """Return the allowed dotted names: modules (with all below them), classes and functions."""
    named = {name.strip() for name in os.environ.get(VARIABLE, "").split(",")}
    return tuple(sorted({*named, *_list_installed()} - {""}))


def load_class(dotted: str, kind: Kind) -> Any:
    """Return the class with a dotted name such as `my_package.my_module.MyClass`. Nothing of it is called.

    Raises ConfigError if it is not allowed, cannot be imported, is no class, or is a plug-in of another kind.
    """
    where = f"'{dotted}', named by {kind.key}"
    attribute = _find_attribute(dotted, where)
    if not isinstance(attribute, type):
        raise ConfigError(f"{where}: {_find_place(dotted, attribute, 'class')}")
    if not kind.is_met_by(attribute):
        raise ConfigError(f"{where}, is no class for that key: it has to have {kind.methods}")
    return attribute


def load_function(dotted: str, option: str) -> Callable[..., Any]:
    """Return the function of one argument whose dotted name `option` gives. It is not called.

    Raises ConfigError if it is not allowed, cannot be imported, or is no such function.
    """
    where = f"'{dotted}', named by {option}"
    attribute = _find_attribute(dotted, where)
    if isinstance(attribute, type) or not callable(attribute):
        raise ConfigError(f"{where}: {_find_place(dotted, attribute, 'function')}")
    if not _takes_one_argument(attribute):
        raise ConfigError(f"{where}, is no function for that: it has to take one argument, a pyarrow.RecordBatch")
    return cast("Callable[..., Any]", attribute)


@contextmanager
def name_fault(class_: type, doing: str, secrets: Sequence[str] = ()) -> Iterator[None]:
    """Name a plug-in's class, and its task `doing`, in every error it raises.

    The platform's own errors keep their type. Values of `secrets`, such as its options, are masked.

    Raises:
        PermanentError: the plug-in raised another error.
    """
    try:
        yield
    except PlatformError as error:
        if choose_cause(error, secrets) is not None:
            raise
        # The error's text shows a secret: raise the same kind of error without it.
        kind = TransientError if isinstance(error, TransientError) else PermanentError
        raise kind(mask_options(str(error), secrets)) from None
    except Exception as error:  # noqa: BLE001 - a user's code
        who = f"{class_.__module__}.{class_.__qualname__}"
        message = mask_options(f"{type(error).__name__}: {error}", secrets)
        raise PermanentError(f"{who} failed, {doing}: {message}. Correct the class, and run again") from choose_cause(
            error, secrets
        )


def mask_options(text: str, options: Iterable[str]) -> str:
    """Mask the values of a plug-in's options in its message, as they may be secrets and other people read messages."""
    # the longest first: a value may be a part of another
    for value in sorted(options, key=len, reverse=True):
        text = mask_value(text, value)
    return text


def choose_cause(error: BaseException, options: Iterable[str]) -> BaseException | None:
    """Return a plug-in's error as a cause, or None if its traceback shows the value of an option, perhaps a secret."""
    shown = "".join(traceback.format_exception(error))
    return error if mask_options(shown, options) == shown else None


def _takes_one_argument(function: Callable[..., object]) -> bool:
    """Return True if a function can be called with one argument. One without a signature is accepted."""
    try:
        signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _find_attribute(dotted: str, where: str) -> object:
    """Return the attribute with a dotted name, or None if its module lacks it. Raise ConfigError if not allowed."""
    module_name, _, name = dotted.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in dotted.split(".")):
        raise ConfigError(f"{where}, is no dotted Python name, such as my_package.my_module.MyClass")
    allowed = read_allowance()
    if not _is_within(dotted, allowed) and dotted.startswith(("com.", "io.", "net.", "org.", "software.")):
        raise ConfigError(
            f"{where}, is a Java class, which cannot run here: write its like in Python, docs/extending.md"
        )
    if not _is_within(dotted, allowed):
        raise ConfigError(f"{where}, is no plug-in that this installation allows: {_explain_allowance(allowed)}")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the user's module runs, and may raise anything
        raise ConfigError(
            f"{where}: cannot import the module {module_name}: {type(error).__name__}: {error}; it must be on the "
            "Python path of the driver and of each Spark executor"
        ) from error
    attribute = getattr(module, name, None)
    home = getattr(attribute, "__module__", None)
    # An allowed module may import other things for itself, such as Popen. That does not allow those.
    if callable(attribute) and dotted not in allowed and not (isinstance(home, str) and _is_within(home, allowed)):
        raise ConfigError(
            f"{where}, is of the module {home}, which this installation does not allow: {_explain_allowance(allowed)}"
        )
    return attribute


def _is_within(dotted: str, allowed: tuple[str, ...]) -> bool:
    """Return True if one of the allowed names is the dotted name, or a module above it."""
    return any(dotted == name or dotted.startswith(f"{name}.") for name in allowed)


def _explain_allowance(allowed: tuple[str, ...]) -> str:
    """Return which names the installation allows and how to allow another, as the end of an error."""
    return (
        f"it allows {', '.join(allowed) or 'none'}. If the module is to be trusted, name it in the environment variable"
        f" {VARIABLE} of Dagster's processes and of the command line, or in its distribution's entry point group"
        f" {ENTRY_POINTS}"
    )


def _find_place(dotted: str, attribute: object, kind: str) -> str:
    """Return what the module has instead of the class or function (`kind`) that was to be loaded, for an error."""
    module_name, _, name = dotted.rpartition(".")
    actual = "has no" if attribute is None else f"has {type(attribute).__name__}, not a {kind}, as its"
    return f"the module {module_name} {actual} attribute {name}"


@cache
def _list_installed() -> frozenset[str]:
    """Return the names declared by installed distributions. They do not change during a process."""
    return frozenset(point.value.split("[")[0].strip().replace(":", ".") for point in entry_points(group=ENTRY_POINTS))
