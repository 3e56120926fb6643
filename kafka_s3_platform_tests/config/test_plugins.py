"""Which plug-ins are loaded: those that the installation allows, of the kind that the key is for, and nothing else."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kafka_s3_platform.config import plugins
from kafka_s3_platform.config.plugins import load_class, load_function
from kafka_s3_platform.errors import ConfigError

MODULE = """
import subprocess
from collections.abc import Callable
from os import system
from subprocess import Popen

class Mapper:
    called = []
    def __init__(self, options): self.called.append(options)
    def apply(self, batch): return batch

class Tool:
    def __init__(self, command): raise AssertionError("called")

def predicate(batch): return batch
def reset(): raise AssertionError("called")
number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with a module of a user's, on the Python path."""
    (tmp_path / "users_package").mkdir()
    (tmp_path / "users_package" / "__init__.py").write_text("")
    (tmp_path / "users_package" / "module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "users_package", raising=False)
    monkeypatch.delitem(sys.modules, "users_package.module", raising=False)
    return "users_package.module"


@pytest.mark.parametrize("allowed", ["users_package", "users_package.module", " other, users_package.module.Mapper ,"])
def test_what_the_environment_names_is_loaded_and_not_called(
    module: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_S3_PLUGINS", allowed)
    found = load_class(f"{module}.Mapper", plugins.MAPPER)
    assert found is importlib.import_module(module).Mapper
    assert found.called == []


@pytest.mark.parametrize("allowed", [None, "", ",", "users", "users_package.mod", "module", "*", "users_package.*"])
@pytest.mark.parametrize(
    ("load", "key"),
    [(partial(load_class, kind=plugins.MAPPER), "transforms.<alias>.type"), (partial(load_function, option="o"), "o")],
)
def test_a_module_that_nobody_allowed_is_not_even_imported(
    module: str, load: Callable[[str], object], key: str, allowed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if allowed is None:
        monkeypatch.delenv("KAFKA_S3_PLUGINS")
    else:
        monkeypatch.setenv("KAFKA_S3_PLUGINS", allowed)
    with pytest.raises(ConfigError) as raised:
        load(f"{module}.Mapper")
    for told in (module, f"named by {key}", "KAFKA_S3_PLUGINS", "entry point group kafka_s3_platform.plugins"):
        assert told in str(raised.value)
    assert module not in sys.modules


@pytest.mark.parametrize(
    "dotted", ["subprocess.Popen", "os.system", "builtins.eval", "ctypes.CDLL", "kafka_s3_platform.cli.main"]
)
@pytest.mark.parametrize("kind", [plugins.MAPPER, plugins.CREDENTIALS_PROVIDER, plugins.FORMAT, plugins.FOLDERS])
def test_what_is_merely_importable_is_no_plug_in(dotted: str, kind: plugins.Kind) -> None:
    with pytest.raises(ConfigError, match=rf"'{dotted}', named by .*no plug-in that this installation allows"):
        load_class(dotted, kind)
    with pytest.raises(ConfigError, match=r"named by --predicate.*no plug-in that this installation allows"):
        load_function(dotted, "--predicate (predicate)")


def test_what_an_allowed_module_has_imported_is_no_plug_in(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_S3_PLUGINS", "users_package")
    with pytest.raises(ConfigError, match="is of the module subprocess, which this installation does not allow"):
        load_class(f"{module}.Popen", plugins.MAPPER)
    with pytest.raises(ConfigError, match="is of the module posix, which this installation does not allow"):
        load_function(f"{module}.system", "predicate")
    with pytest.raises(ConfigError, match=r"cannot import the module users_package\.module\.subprocess"):
        load_class(f"{module}.subprocess.Popen", plugins.MAPPER)


def test_a_class_of_another_kind_is_refused_before_it_is_called(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_S3_PLUGINS", "users_package")
    for kind in (plugins.MAPPER, plugins.PARTITIONER, plugins.CREDENTIALS_PROVIDER, plugins.FORMAT):
        with pytest.raises(ConfigError, match=r"no class for that key: it has to have \w+\(\)"):
            load_class(f"{module}.Tool", kind)
    with pytest.raises(ConfigError, match=r"it has to have write\(\) and close\(\), or read\(\)"):
        load_class(f"{module}.Mapper", plugins.FORMAT)
    with pytest.raises(ConfigError, match="it has to take one argument"):
        load_function(f"{module}.reset", "predicate")
    assert load_function(f"{module}.predicate", "predicate")(1) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("OrderedDict", "is no dotted Python name"),
        ("{}.", "is no dotted Python name"),
        ("{}.Map-per", "is no dotted Python name"),
        ("users_package.none.Thing", "cannot import the module users_package.none: ModuleNotFoundError"),
        ("{}.NoSuchClass", "the module users_package.module has no attribute NoSuchClass"),
        ("{}.predicate", "the module users_package.module has function, not a class, as its attribute predicate"),
        ("{}.number", "the module users_package.module has int, not a class, as its attribute number"),
    ],
)
def test_what_could_not_be_loaded_is_named(module: str, name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_S3_PLUGINS", "users_package")
    with pytest.raises(ConfigError, match=said) as raised:
        load_class(name.format(module), plugins.MAPPER)
    assert str(raised.value).startswith(f"'{name.format(module)}', named by transforms.<alias>.type")


def test_a_module_that_fails_while_it_is_imported_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("KAFKA_S3_PLUGINS", "broken_plugin")
    with pytest.raises(ConfigError, match=r"broken_plugin.* RuntimeError: no licence"):
        load_class("broken_plugin.Thing", plugins.MAPPER)


@pytest.mark.parametrize(
    ("point", "loaded", "refused"),
    [
        ("users_package", ["Mapper"], []),
        ("users_package.module", ["Mapper", "Other"], []),
        ("users_package.module:Mapper", ["Mapper"], ["Other"]),
    ],
)
def test_an_installed_distribution_allows_its_own_by_an_entry_point(
    module: str, tmp_path: Path, point: str, loaded: list[str], refused: list[str]
) -> None:
    """In a process of its own: what is installed does not change while one lasts."""
    folder = tmp_path / "users_package-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: users-package\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[kafka_s3_platform.plugins]\nany_name = {point}\n")
    (tmp_path / "users_package" / "module.py").write_text(f"{MODULE}\nclass Other(Mapper): ...\n")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from kafka_s3_platform.config.plugins import MAPPER, load_class
for name in {loaded + refused!r}:
    try:
        print(load_class("{module}." + name, MAPPER).__name__)
    except Exception as err:
        print("refused" if "installation allows" in str(err) else err)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={})
    assert done.stdout.split() == [*loaded, *("refused" for _ in refused)]
