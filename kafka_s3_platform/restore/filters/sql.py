"""A condition in DuckDB's SQL over the columns of a record, checked to be nothing else."""

from typing import final

import pyarrow as pa

from kafka_s3_platform.errors import ConfigError, PermanentError
from kafka_s3_platform.model.batches import RECORD_SCHEMA
from kafka_s3_platform.model.connect import cut_reason
from kafka_s3_platform.restore.filters import deciding
from kafka_s3_platform.restore.filters.deciding import DecidingProcess, FailedError

OPTION = "--sql (what.sql)"

_MODULE = "kafka_s3_platform.restore.filters.sql_process"


@final
class SqlCondition:
    """A condition such as `text(key) LIKE 'eu-%' AND "offset" % 10 = 0`: each record by itself decides.

    Columns are those of RECORD_SCHEMA: key and value are BLOBs, `timestamp` is a TIMESTAMP in UTC, `offset` needs its
    double quotes. It sees no files, no other tables and no clock, so the same record gives the same answer. A
    separate process decides it, with limits of memory and time.

    Raises:
        ConfigError: it is no such condition, does not fit the columns, or costs too much without any record.
    """

    def __init__(self, condition: str) -> None:
        self._condition = condition
        self._process = DecidingProcess(_MODULE, condition)
        try:
            self._process.passing(pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA), deciding.CHECK_SECONDS)
        except FailedError as err:
            raise _explain_unusable(condition, str(err)) from err

    def passing(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Decide for each record. PermanentError if the condition fails for one of them."""
        parts = [
            self._passing(batch.slice(at, deciding.ROWS_AT_ONCE))
            for at in range(0, batch.num_rows, deciding.ROWS_AT_ONCE)
        ]
        if parts:
            return pa.concat_arrays(parts)
        return pa.array([], pa.bool_())

    def _passing(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        try:
            return self._process.passing(batch, deciding.ROWS_SECONDS)
        except FailedError as err:
            offsets = batch.column("offset")
            raise PermanentError(
                f"{OPTION} {cut_reason(repr(self._condition))} failed on a record of offsets {offsets[0]} to "
                f"{offsets[-1]}: {err}. `try(...)` makes a null of what fails, which does not pass"
            ) from err


def _explain_unusable(condition: str, why: str) -> ConfigError:
    quoted = ' Write the column offset as "offset", in double quotes.' if "offset" in why.lower() else ""
    columns = ", ".join(RECORD_SCHEMA.names)
    return ConfigError(f"{OPTION} {cut_reason(repr(condition))} is no condition over {columns}: {why}.{quoted}")
