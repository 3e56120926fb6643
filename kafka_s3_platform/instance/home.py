"""Opens Dagster's instance as `dagster dev` finds it."""

import os
from pathlib import Path

import dagster as dg

from kafka_s3_platform.errors import ConfigError, ErrorCode
from kafka_s3_platform.instance.failures import explain_storage_error
from kafka_s3_platform.local.processes import lock_folder, make_private_folder


def find_instance() -> dg.DagsterInstance | None:
    """Open the instance of DAGSTER_HOME, or else of the `dagster.yaml` in this folder. None if there is neither.

    Only one process at a time does so. If two create the databases of a fresh home at once, these get two revisions.
    A folder of runs open to other users is closed.

    Raises:
        ConfigError: DAGSTER_HOME or the file cannot be used.
        PlatformError: its storage does not answer.
    """
    try:
        return _open_instance()
    except dg.DagsterError as err:
        raise ConfigError(f"Dagster's instance cannot be opened: {err}", code=ErrorCode.DAGSTER) from err
    except Exception as err:
        if explained := explain_storage_error(err):
            raise explained from err
        raise


def _open_instance() -> dg.DagsterInstance | None:
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
