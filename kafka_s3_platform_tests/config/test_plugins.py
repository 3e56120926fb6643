"""Which plug-ins are loaded: those that the installation allows, of the kind that the key is for, and nothing else."""

import ast
import importlib
import io
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr

from kafka_s3_platform.connect.converters import new_converter
from kafka_s3_platform.connect.transforms import new_chain
from kafka_s3_platform.core.config import plugins
from kafka_s3_platform.core.config.plugins import load_class, load_function
from kafka_s3_platform.core.config.settings import (
    ConverterSettings,
    LayoutSettings,
    ProviderSettings,
    StoreSettings,
    TransformSettings,
)
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.formats.format_io import find_extension, new_writer
from kafka_s3_platform.core.layouts.new_layout import new_segment_layout
from kafka_s3_platform.core.layouts.segment_key import list_endings
from kafka_s3_platform.core.partitioners.extractors import new_extractor
from kafka_s3_platform.core.partitioners.folders import new_folders
from kafka_s3_platform.core.partitioners.partitioners import new_partitioner
from kafka_s3_platform.core.store.credentials import find_credentials

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
        load_function(dotted, "--predicate (what.predicate)")


def test_of_a_java_class_it_is_not_advised_to_trust_it() -> None:
    with pytest.raises(
        ConfigError, match=r"ExtractNewRecordState', named by .*, is a Java class, .* in Python"
    ) as raised:
        load_class("io.debezium.transforms.ExtractNewRecordState", plugins.MAPPER)
    assert "KAFKA_S3_PLUGINS" not in str(raised.value)


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
    assert raised.value.text.startswith(f"'{name.format(module)}', named by transforms.<alias>.type")


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
from kafka_s3_platform.core.config.plugins import MAPPER, load_class
for name in {loaded + refused!r}:
    try:
        print(load_class("{module}." + name, MAPPER).__name__)
    except Exception as err:
        print("refused" if "installation allows" in str(err) else err)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={})
    assert done.stdout.split() == [*loaded, *("refused" for _ in refused)]


IMPORTS = {"import_module", "__import__", "exec_module", "load_module", "run_module", "run_path", "eval", "exec"}
EXPECTED = {
    "core/config/plugins.py": "decides",
    "cli/__init__.py": "imports our own commands, by a table",
    "core/extensions.py": "imports what our own part `connect` adds, by its table",
    "core/formats/format_io.py": "imports our own formats, by their table; a name in a file chooses none",
    "python_daemon.py": "imports what our own tasks import, by a table",
}


def test_no_other_place_imports_by_a_name_or_runs_a_text() -> None:
    """A plug-in that is loaded elsewhere would be loaded without being asked for."""
    package = Path(plugins.__file__).parents[2]
    found: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = {call.attr for call in calls if isinstance(call, ast.Attribute)}
        names |= {call.id for call in calls if isinstance(call, ast.Name)}
        if used := names & IMPORTS:
            found[str(path.relative_to(package))] = used
    assert found == {place: {"import_module"} for place in EXPECTED}


POPEN = "subprocess.Popen"
STORE = StoreSettings(bucket="b", provider=ProviderSettings(class_name=POPEN, options=(("touch", SecretStr("")),)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: new_partitioner(LayoutSettings(partitioner=POPEN)),
        lambda: new_folders(LayoutSettings(partitioner=POPEN)),
        lambda: new_extractor(LayoutSettings(timestamp_extractor=POPEN)),
        lambda: new_writer(cast("Any", io.BytesIO()), LayoutSettings(format=POPEN), "value", None),
        lambda: find_extension(LayoutSettings(format=POPEN), "value"),
        lambda: list_endings(LayoutSettings(format=POPEN), "value"),
        lambda: new_chain([TransformSettings(alias="a", type=POPEN, options={"touch": SecretStr("")})], "t"),
        lambda: find_credentials(STORE),
        lambda: new_segment_layout(LayoutSettings(key_layout=POPEN)),
        lambda: new_converter(ConverterSettings(format=POPEN), "t", is_key=False),
    ],
)
def test_settings_from_wherever_they_come_load_nothing_by_themselves(make: Callable[[], object]) -> None:
    """Those of a segment come from the index, which whoever writes to the bucket may change."""
    with pytest.raises(ConfigError, match="no plug-in that this installation allows"):
        make()
