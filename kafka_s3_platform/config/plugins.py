"""A user's own Python classes and functions: partitioners, extractors, formats, transforms, by dotted name."""

import importlib
from collections.abc import Callable
from typing import Any, cast

from kafka_s3_platform.errors import ConfigError


def load_class(dotted: str) -> type:
    """The class that a dotted name such as `my_package.my_module.MyClass` stands for.

    Raises:
        ConfigError: the module cannot be imported, or has no class of that name.
    """
    found = _found(dotted)
    if not isinstance(found, type):
        wrong = "has no" if found is None else f"has {type(found).__name__}, not a class, as its"
        raise ConfigError(f"{_place(dotted, wrong)}, named by '{dotted}'")
    return found


def load_function(dotted: str, option: str) -> Callable[..., Any]:
    """The function that a dotted name stands for; `option` named it.

    Raises:
        ConfigError: the module cannot be imported, or has nothing of that name that can be called.
    """
    try:
        found = _found(dotted)
    except ConfigError as err:
        raise ConfigError(f"{option}: {err}") from err
    if isinstance(found, type) or not callable(found):
        wrong = "has no" if found is None else f"has {type(found).__name__}, not a function, as its"
        raise ConfigError(f"{option}: {_place(dotted, wrong)}")
    return cast("Callable[..., Any]", found)


def _place(dotted: str, wrong: str) -> str:
    module_name, _, name = dotted.rpartition(".")
    return f"the module {module_name} {wrong} attribute {name}"


def _found(dotted: str) -> object:
    """The attribute, None where there is none."""
    module_name, _, name = dotted.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in dotted.split(".")):
        raise ConfigError(f"'{dotted}' is no dotted Python name, such as my_package.my_module.MyClass")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the user's module runs: whatever it raises is a fault of the file that names it
        raise ConfigError(
            f"cannot import the module {module_name} of '{dotted}': {type(error).__name__}: {error}; it must be on the "
            "Python path of the driver and of each Spark executor"
        ) from error
    return getattr(module, name, None)
