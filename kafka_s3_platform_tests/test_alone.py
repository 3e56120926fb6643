"""The core is whole without the parts that interpret and operate."""

import re
import subprocess
import sys

from kafka_s3_platform.connect import EXTENSIONS
from kafka_s3_platform_tests.conftest import REPOSITORY

ROOMS = ("archive", "codecs", "formats", "java", "model", "partitioners", "segments", "status", "store")
EVERY_MODULE = """
import kafka_s3_platform_tests.alone, importlib, pkgutil, kafka_s3_platform.core as core
names = [m.name for m in pkgutil.walk_packages(core.__path__, core.__name__ + ".")]
print(len([importlib.import_module(name) for name in names if not name.endswith((".regex_process", ".sql_process"))]))
"""


def test_the_core_asks_for_what_connect_adds_and_for_nothing_else() -> None:
    texts = [path.read_text() for path in (REPOSITORY / "kafka_s3_platform" / "core").rglob("*.py")]
    asked = {name for text in texts for name in re.findall(r'(?:load_extensions?|find_addition)\(\s*"(\w+)"', text)}
    assert asked == EXTENSIONS.keys()


def test_every_module_of_the_core_is_imported_where_no_other_part_can_be() -> None:
    done = subprocess.run([sys.executable, "-c", EVERY_MODULE], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 200


def test_the_cores_own_tests_pass_where_no_other_part_can_be_imported() -> None:
    """Those that need servers are run so by hand, see `alone.py`."""
    command = [sys.executable, "-m", "pytest", "-p", "kafka_s3_platform_tests.alone", "-p", "no:xdist", "-q"]
    options = ["-m", "not long and not connect and not integration", "--tb=short", "-p", "no:cacheprovider"]
    rooms = [f"kafka_s3_platform_tests/{room}" for room in ROOMS]
    done = subprocess.run([*command, *options, *rooms], capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout[-4000:]
