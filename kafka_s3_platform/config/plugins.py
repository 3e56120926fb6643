"""A user's own Python classes: partitioners, extractors, formats, transforms, by dotted name."""

import importlib

from kafka_s3_platform.errors import ConfigError


def load_class(dotted: str) -> type:
    """The class that a dotted name such as `my_package.my_module.MyClass` stands for.

    Raises:
        ConfigError: the module cannot be imported, or has no class of that name.
    """
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
    found = getattr(module, name, None)
    if not isinstance(found, type):
        wrong = "has no" if found is None else f"has {type(found).__name__}, not a class, as its"
        raise ConfigError(f"the module {module_name} {wrong} attribute {name}, named by '{dotted}'")
    return found
