"""The parent process of Spark's Python workers, with the modules of tasks already imported.

Spark starts it as `python -m kafka_s3_platform.python_daemon`, because `spark.python.daemon.module` names it.
"""

import gc
import importlib
import os
import sys
import traceback
from zipimport import zipimporter

TASKS = (
    "kafka_s3_platform.core.archive.scan",
    "kafka_s3_platform.core.formats.envelope.parquet",
    "kafka_s3_platform.core.formats.envelope.records",
    "kafka_s3_platform.core.kafka.fetch.fetch_reader",
    "kafka_s3_platform.core.spark.runner",
    "boto3.s3.inject",
    "pandas",
    "pyarrow.pandas_compat",
    "pyspark.worker",
)
"""The modules that every task of an archive run imports, and pandas, since pyarrow asks for it at its first array.
Other tasks, such as a restore's, import the rest in their worker."""

WITHOUT_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}
"""Settings of libraries that start threads when imported: Arrow's allocator, and numpy's linear algebra."""


def import_for_tasks() -> None:
    """Import the modules of tasks without starting a thread, since a fork copies only the forking thread."""
    os.environ.update(WITHOUT_THREADS)
    for name in TASKS:
        try:
            importlib.import_module(name)
        except ImportError:
            # The task that needs it fails with this error, and tells it to the run. Others go on.
            traceback.print_exc(file=sys.stderr)
    # PySpark empties the caches of importers before each task. Each importer of a zip file, one a package of PySpark's,
    # would read the file's list of 1,800 entries again. Without an importer there is none to read it.
    for path in [path for path, importer in sys.path_importer_cache.items() if isinstance(importer, zipimporter)]:
        del sys.path_importer_cache[path]
    # Workers share this memory with the daemon until somebody writes to it, as a collection would do.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    import_for_tasks()
    from pyspark.daemon import manager

    manager()
