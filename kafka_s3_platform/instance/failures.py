"""Errors of Dagster's storage, as the platform's."""

from kafka_s3_platform.errors import (
    ErrorCode,
    FullDiskError,
    PermanentError,
    PlatformError,
    TransientError,
    iterate_causes,
)

_DRIVERS = frozenset({"psycopg", "psycopg2", "sqlite3"})
_ADVICE = "Check what dagster.yaml names: whether the database runs, or the folder can be written; then run again"


def explain_storage_error(err: BaseException) -> PlatformError | None:
    """Return the error to raise if Dagster's storage has failed. None: it was something else.

    The text has no words of a database but those of SQLite: a database's may hold the address, and so a password.
    """
    causes = [error for error in iterate_causes(err) if _name_package(error) in _DRIVERS]
    if not causes:
        return None
    cause = causes[-1]
    text = str(cause) if _name_package(cause) == "sqlite3" else type(cause).__name__
    if "disk is full" in text:
        return FullDiskError(f"Dagster's storage: {text}. Make room on this machine's disk, and run again")
    # the driver cannot reach the storage, or it is locked; all other errors are about its content
    kind = TransientError if type(cause).__name__ in {"OperationalError", "InterfaceError"} else PermanentError
    return kind(f"Dagster's storage does not answer: {text}. {_ADVICE}", code=ErrorCode.DAGSTER)


def _name_package(err: BaseException) -> str:
    return type(err).__module__.partition(".")[0]
