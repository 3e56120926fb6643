"""Opens Dagster's instance as `dagster dev` does, and translates errors of its storage to the platform's."""

import os
from pathlib import Path

import dagster as dg

from kafka_s3_platform.core.errors import (
    ConfigError,
    ErrorCode,
    FullDiskError,
    PermanentError,
    PlatformError,
    TransientError,
    iterate_causes,
)
from kafka_s3_platform.core.folders import lock_folder, make_private_folder

_DRIVERS = frozenset({"psycopg", "psycopg2", "sqlite3"})
_ADVICE = "Check what dagster.yaml names: whether the database runs, or the folder can be written; then run again"


def explain_storage_error(err: BaseException) -> PlatformError | None:
    """Return the platform's error if `err` comes from the database of Dagster's storage, else None.

    The text quotes no database but SQLite, because another database's message may contain its address and a password.
    """
    causes = [error for error in iterate_causes(err) if _name_package(error) in _DRIVERS]
    if not causes:
        return None
    cause = causes[-1]
    text = str(cause) if _name_package(cause) == "sqlite3" else type(cause).__name__
    if "disk is full" in text:
        return FullDiskError(f"Dagster's storage: {text}. Make room on this machine's disk, and run again")
    # the driver cannot reach the storage, or it is locked; all other errors are about its content
    error_class = TransientError if type(cause).__name__ in {"OperationalError", "InterfaceError"} else PermanentError
    return error_class(f"Dagster's storage does not answer: {text}. {_ADVICE}", code=ErrorCode.DAGSTER)


def _name_package(err: BaseException) -> str:
    return type(err).__module__.partition(".")[0]


def find_instance() -> dg.DagsterInstance | None:
    """Open the instance of DAGSTER_HOME, or else of the `dagster.yaml` in this folder. Return None if there is neither.

    Only one process at a time opens it. If two created the databases of a fresh home at once, these would get two
    revisions. If the folder of runs is open to other users, it is closed to them.

    Raises:
        ConfigError: DAGSTER_HOME or the file cannot be used.
        PlatformError: the storage does not answer.
    """
    try:
        return _open_instance()
    except dg.DagsterError as err:
        raise ConfigError(f"Dagster's instance cannot be opened: {err}", code=ErrorCode.DAGSTER) from err
    except Exception as err:
        if storage_error := explain_storage_error(err):
            raise storage_error from err
        raise


def _open_instance() -> dg.DagsterInstance | None:
    """Open the instance under a lock. Close the folder of runs to other users."""
    if (data := Path(".dagster")).is_dir():
        make_private_folder(data)
    home = os.environ.get("DAGSTER_HOME")
    if home and Path(home).is_dir():
        with lock_folder(Path(home) / "kafka_s3_lock"):
            return dg.DagsterInstance.get()
    if home:
        return dg.DagsterInstance.get()
    if Path("dagster.yaml").exists():
        with lock_folder(Path(".dagster") / "kafka_s3_lock"):
            return dg.DagsterInstance.from_config(str(Path.cwd()))
    return None
