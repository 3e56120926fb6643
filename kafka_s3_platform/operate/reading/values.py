"""Decodes values to typed columns, with the archived schema of a value or with the schema of its object.

All values read together become values of one schema, by Avro's schema resolution. Any other value is an error.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_s3_platform.connect.avro.projection import ProjectionError, project_values
from kafka_s3_platform.connect.avro.schema import read_full_name
from kafka_s3_platform.connect.avro.values import AvroSchema
from kafka_s3_platform.connect.avro.walk import read_columns
from kafka_s3_platform.connect.converters.avro import parse_avro_schema
from kafka_s3_platform.connect.converters.base import BadRecordError
from kafka_s3_platform.connect.converters.framed import RecordConverter
from kafka_s3_platform.connect.converters.registry import open_registry
from kafka_s3_platform.connect.formats.parquet.value_columns import ArrowColumns, convert_type
from kafka_s3_platform.core.config.settings import ConnectorConfig, ConverterSettings
from kafka_s3_platform.core.errors import ConfigError, RecordError
from kafka_s3_platform.core.formats.parts import UnwritableSchemaError
from kafka_s3_platform.core.formats.reading import build_bytes_payload
from kafka_s3_platform.core.model.batches import read_offset_column
from kafka_s3_platform.core.model.connect import NO_SCHEMA, VALUE_ERRORS, Payload, Positions, Schema
from kafka_s3_platform.core.model.schema import ArchivedSchema
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.segments.schemas import find_ambiguous_ids
from kafka_s3_platform.operate.reading.parts import EnvelopePart, ReadPart

logger = logging.getLogger(__name__)

_RAW = "Without decode, the bytes of values are read as they are"


@dataclass(frozen=True)
class ValueDecoder:
    """Decodes values to one type. `schema` is the type's schema, and `converter` reads the values of whole records.

    Raises (when values are decoded):
        RecordError: a value cannot be decoded, or cannot be converted to the schema.
        RegistryUnavailableError: a schema is not archived, and the registry does not answer.
    """

    topic: str
    schema: Schema
    converter: ConverterSettings = field(repr=False)

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""
        return _compile_target(self.schema.text).type

    def decode_records(self, batch: pa.RecordBatch) -> pa.Array:
        """Decode the column `value` of whole records of one kafka partition, as Arrow reads it from an object."""
        return self.decode(build_bytes_payload(batch.column("value")), batch)

    def decode(self, payload: Payload, records: pa.RecordBatch) -> pa.Array:
        """Decode values. The converter reads bytes without a schema, since they are as in a record in Kafka."""
        if not records.num_rows:
            return pa.array([], self.type)
        kafka_partition = records.column("partition")[0].as_py()
        offsets = read_offset_column(records)
        if payload.raw is not None and payload.raw_is_value and not payload.raw_is_json and not payload.schemas:
            payload = convert_values(self.converter, self.topic, payload.raw, records)
        pieces: list[tuple[Positions, pa.Array]] = []
        nulls = payload.is_null
        for code in np.unique(payload.codes).tolist():
            rows = np.flatnonzero((payload.codes == code) & ~nulls)
            if not rows.size:
                continue
            if code == NO_SCHEMA:
                self._raise_misfit(kafka_partition, int(offsets[rows[0]]), "has no schema, so it has no columns")
            code_payload = payload if rows.size == len(payload) else payload.take(rows)
            try:
                pieces.append((rows, _compile_target(self.schema.text).build(code_payload, payload.schemas[code])))
            except _MisfitError as err:
                self._raise_misfit(kafka_partition, int(offsets[rows[err.row]]), str(err))
        return _spread_rows(pieces, len(payload), self.type)

    def _raise_misfit(self, kafka_partition: int, offset: int, reason: str) -> None:
        """Raise RecordError for a value that cannot be a value of the schema."""
        number = self.schema.schema_id
        target_name = "the schema of the newest object" if number is None else f"schema {number}"
        raise RecordError(
            f"{self.topic}-{kafka_partition}, offset {offset}: the value {reason} (values come to {target_name}). Ask "
            f"for another schema by schema_id, or for a selection without it. {_RAW}"
        )


def convert_values(converter: ConverterSettings, topic: str, raw: pa.BinaryArray, records: pa.RecordBatch) -> Payload:
    """Convert the bytes of records' values. Raise RecordError if the converter cannot read one of them."""
    columns = {name: records.column(name) for name in ("partition", "offset", "headers")}
    converted = RecordConverter(converter, topic, "value").convert(pa.record_batch({**columns, "value": raw}))
    for failure in converted.failures:
        raise RecordError(f"{topic}-{columns['partition'][0]}: {failure.message}. {_RAW}")
    for sentence in converted.notes.sentences:
        logger.warning("%s-%s: %s", topic, columns["partition"][0], sentence)
    return converted.payload


def find_decoder(
    config: ConnectorConfig,
    topic: str,
    archived: Sequence[ArchivedSchema],
    segments: Sequence[Segment],
    parts: Sequence[ReadPart],
    schema_id: int | None,
) -> ValueDecoder | None:
    """Find the schema for all values of these objects: by its id, or else the newest. Return None if there is none yet.

    The newest archived Avro schema is the last version of the topic's subject named by any of the values. For other
    values it is the schema of the newest object, which is opened to read it. Raises ConfigError if values have no
    schema, or one without columns, or if the schema is not archived.
    """
    converter = config.records.value
    if converter.registry is not None and archived:
        registry = converter.registry.model_copy(update={"archived": tuple(archived)})
        converter = converter.model_copy(update={"registry": registry})
    envelopes = [*segments, *(part.segment for part in parts if isinstance(part, EnvelopePart))]
    if envelopes and (converter.format == "BYTES" or converter.unread):
        raise ConfigError(
            f"connector {config.name}, topic {topic}: its file does not say how values are decoded: "
            f"{converter.unread or 'it has no value.converter, or ByteArrayConverter'}. {_RAW}"
        )
    names = {name for segment in envelopes for name in segment.schema_ids}
    schema_ids_in_use = {s.schema_id for s in archived if not names.isdisjoint({s.schema_id, s.schema_guid})}
    if ambiguous := sorted(
        schema_ids_in_use & find_ambiguous_ids(archived, config.records).keys() if schema_ids_in_use else ()
    ):
        raise ConfigError(
            f"connector {config.name}, topic {topic}: registries gave the schema ids {ambiguous} to different schemas, "
            f"and a value may mean any of them. {_RAW}"
        )
    if schema_id is None and converter.format == "AVRO":
        # If the selection has no record, its column still has the topic's schema.
        schema_id = _choose_newest(
            archived, topic, schema_ids_in_use if envelopes or parts else {s.schema_id for s in archived}
        )
    if schema_id is not None:
        schema = _read_archived(config, converter, topic, schema_id)
    elif envelopes or parts:
        schema = _read_newest(config, converter, topic, segments, parts)
    else:
        return None
    try:
        _compile_target(schema.text)
    except UnwritableSchemaError as err:
        raise ConfigError(f"connector {config.name}, topic {topic}: values cannot be columns: {err}. {_RAW}") from err
    return ValueDecoder(topic, schema, converter)


def _choose_newest(archived: Sequence[ArchivedSchema], topic: str, schema_ids: set[int]) -> int | None:
    """Choose the last Avro version of the topic's subject among these ids. Return None if there is none."""
    subject = f"{topic}-value"
    versions = [
        (subject_version.version, schema.schema_id)
        for schema in archived
        if schema.schema_id in schema_ids and schema.schema_type == "AVRO"
        for subject_version in schema.subjects
        if subject_version.subject == subject
    ]
    return max(versions)[1] if versions else None


def _read_archived(config: ConnectorConfig, converter: ConverterSettings, topic: str, schema_id: int) -> Schema:
    """Return the archived schema with this id. Raise ConfigError if it is unreadable or the converter is not Avro's."""
    where = f"connector {config.name}, topic {topic}: schema {schema_id}"
    if converter.format != "AVRO" or converter.registry is None:
        raise ConfigError(f"{where} cannot be read: the connector's value.converter is not AvroConverter")
    try:
        return open_registry(converter.registry).compile_once(schema_id, f"{topic}-value", parse_avro_schema)
    except BadRecordError as err:
        raise ConfigError(f"{where} cannot be read: a value that names it {err}") from err


def _read_newest(
    config: ConnectorConfig,
    converter: ConverterSettings,
    topic: str,
    segments: Sequence[Segment],
    parts: Sequence[ReadPart],
) -> Schema:
    """Read the schema of a value in the newest object that has any value."""
    candidates = [*(EnvelopePart(config.store, segment) for segment in segments), *(part.last for part in parts)]
    for part in sorted(candidates, key=lambda part: part.newest_ms, reverse=True):
        for batch in part.batches(()):
            payload = batch.value
            if isinstance(part, EnvelopePart):
                payload = convert_values(converter, topic, payload.raw, batch.records)
            codes = payload.codes[payload.codes != NO_SCHEMA]
            if codes.size:
                return payload.schemas[int(codes[-1])]
            if not payload.is_null.all():
                break
    raise ConfigError(
        f"connector {config.name}, topic {topic}: values have no schema, so they have no columns. {_RAW}: JSON by the "
        f"engine's own functions, such as from_json of Spark"
    )


class _MisfitError(Exception):
    """A value does not fit the target schema. `row` is its position."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


class _Target:
    """Builds the column of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._avro = AvroSchema(schema.avro)
        root = self._avro.root
        self._is_record = self._avro.kind(root) == "record"
        wrapped = {"type": "record", "name": "(value)", "fields": [{"name": "value", "type": root}]}
        self._columns = ArrowColumns(self._avro, root if self._is_record else wrapped)
        self.type: pa.DataType = self._columns.type if self._is_record else self._columns.type.field(0).type

    def build(self, payload: Payload, schema: Schema) -> pa.Array:
        """Build the column from values of one schema, none of them null. Raise _MisfitError if one does not fit."""
        column = self._build_quickly(payload, schema) if self._is_record else None
        return self._build_objects(payload.objects, schema) if column is None else column

    def _build_objects(self, objects: Sequence[Any], schema: Schema) -> pa.Array:
        """Build the column from decoded values, after converting them to the schema. A _MisfitError names a value."""
        if schema.text != self._schema.text:
            objects = list(project_values(objects, schema, self._schema))
            for row, value in enumerate(objects):
                if isinstance(value, ProjectionError):
                    raise _MisfitError(row, f"does not fit: {value}")
        rows = objects if self._is_record else [{"value": value} for value in objects]
        try:
            structs = self._columns.build(rows)
            return structs if self._is_record else structs.field(0)
        except VALUE_ERRORS:
            for row, value in enumerate(rows):
                try:
                    self._columns.build([value])
                except VALUE_ERRORS as err:
                    raise _MisfitError(row, f"does not fit: {err}") from err
            raise

    def _build_quickly(self, payload: Payload, schema: Schema) -> pa.Array | None:
        """Build the column without making an object for each value. Return None if this is not possible.

        It must be possible to cast the fields of both schemas without loss. All other fields get their default, as in
        the first value.
        """
        if payload.raw is None or payload.avro_start is None:
            return None
        source = _list_types(schema)
        target = _list_types(self._schema)
        if source is None or target is None or source.name != target.name:
            return None
        shared = source.types.keys() & target.types.keys()
        if not all(_is_castable(source.types[name], target.types[name]) for name in shared):
            return None
        columns = read_columns(schema.avro, payload.raw, payload.avro_start)
        if columns is None or columns.null_count:
            return None
        first_value = self._build_objects(payload.take(slice(0, 1)).objects, schema)
        first_row = pa.array(np.zeros(len(columns), np.int64))
        try:
            children = [
                convert_type(columns.field(column.name), column.type)
                if column.name in shared
                else first_value.field(column.name).take(first_row)
                for column in self.type
            ]
        except VALUE_ERRORS:
            return None  # the slow way names the value
        return pa.StructArray.from_arrays(children, fields=list(self.type))


_LOSSLESS = (("int", "long"), ("int", "double"), ("float", "double"))


def _is_castable(source: Any, target: Any) -> bool:
    """Return True if the types are the same, or if the target is nullable or has more digits."""
    if source == target or (source, target) in _LOSSLESS:
        return True
    others = [branch for branch in target if branch != "null"] if isinstance(target, list) else []
    return len(others) == 1 and len(target) == len(others) + 1 and _is_castable(source, others[0])


@lru_cache
def _compile_target(text: str) -> _Target:
    """Return the builder of a column of this Avro schema. It is made once."""
    return _Target(Schema(text))


@dataclass(frozen=True)
class _RecordTypes:
    """The name of a record, and the types of its fields, each with all definitions it needs."""

    name: str
    types: Mapping[str, Any]


@lru_cache
def _list_types(schema: Schema) -> _RecordTypes | None:
    """List the types of a record's fields. Return None if it is not a record, or if a field has aliases."""
    avro = AvroSchema(schema.avro)
    if avro.kind(avro.root) != "record":
        return None
    root = avro.resolve(avro.root)
    if any(field_.get("aliases") for field_ in root["fields"]):
        return None
    return _RecordTypes(read_full_name(root, ""), {f["name"]: avro.complete(f["type"]) for f in root["fields"]})


def _spread_rows(pieces: Sequence[tuple[Positions, pa.Array]], size: int, kind: pa.DataType) -> pa.Array:
    """Put arrays at their rows. All other rows become null."""
    if len(pieces) == 1 and len(pieces[0][1]) == size:
        return pieces[0][1]
    places = np.full(size, -1, np.int64)
    start = 0
    for rows, values in pieces:
        places[rows] = np.arange(start, start + len(values))
        start += len(values)
    joined_values = pa.concat_arrays([values for _, values in pieces]) if pieces else pa.array([], kind)
    return joined_values.take(pa.array(places, mask=places < 0))
