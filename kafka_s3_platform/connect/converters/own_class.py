"""A user's own converter: the class named in `key.converter` or `value.converter`. It sees one value at a time."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from kafka_s3_platform.connect.converters.base import ConvertedPayload, Origin, explain_bad_record
from kafka_s3_platform.connect.converters.encoding import Encoded, encode_values
from kafka_s3_platform.connect.converters.registry import Registration
from kafka_s3_platform.core.config.plugins import CONVERTER, load_class, mask_options, name_fault
from kafka_s3_platform.core.config.settings import ConverterSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.connect import NO_SCHEMA, Int64s, Payload, Schema


class UserConverter(Protocol):
    """A user's converter class.

    It is instantiated for the keys or the values of one topic, with the options of its connector key. Nulls stay null:
    neither method is called for them. If a method raises an exception, the record has failed.
    """

    def __init__(self, options: Mapping[str, str], topic: str, is_key: bool) -> None: ...

    def to_connect_data(self, data: bytes) -> tuple[Schema | None, Any]:
        """Return the schema of the bytes' value, if it has one, and the value."""
        ...

    def from_connect_data(self, schema: Schema | None, value: Any) -> bytes:
        """Return the bytes of a value. A class without this method can be used to archive, but not to restore."""
        ...


class OwnClassConverter:
    """Decodes and encodes keys or values of a topic with a user's class, whose options are masked in messages."""

    registered: tuple[Registration, ...] = ()

    def __init__(self, settings: ConverterSettings, topic: str, is_key: bool) -> None:
        options = {name: secret.get_secret_value() for name, secret in settings.plugin_options.items()}
        self._origin = Origin(topic, is_key, settings.format)
        self._secrets = tuple(options.values())
        self._class = load_class(settings.format, CONVERTER)
        self._side = "key" if is_key else "value"
        with self._name_fault("made for"):
            self._converter: UserConverter = self._class(options, topic, is_key)

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> ConvertedPayload:
        """Decode each value with the user's class. If the class raises an exception, the record has failed."""
        with self._name_fault("decoding"):
            return self._origin.decode_rows(raw, offsets, self._decode, self._explain)

    def check_encoding(self) -> None:
        """Raise ConfigError if the class only decodes."""
        if not callable(getattr(self._converter, "from_connect_data", None)):
            raise ConfigError(
                f"{self._origin.executing_class} has no from_connect_data, so a restore cannot write {self._side}s with"
                f" it. Add the method, or name another {self._side}.converter in the restore's options (--outgoing)"
            )

    def encode(self, payload: Payload) -> Encoded:
        """Encode each value with the user's class. If the class raises an exception, the record has failed."""
        schemas: dict[int, Schema | None] = {NO_SCHEMA: None, **dict(enumerate(payload.schemas))}
        bodies = {code: partial(self._encode, schema) for code, schema in schemas.items()}
        with self._name_fault("encoding"):
            return encode_values(payload, bodies, self._origin.executing_class)

    def _name_fault(self, doing: str) -> AbstractContextManager[None]:
        """Return a context that adds the class, the side (key or value) and the topic to errors of the class."""
        return name_fault(self._class, f"{doing} {self._side}s of topic {self._origin.topic}", self._secrets)

    def _explain(self, error: Exception) -> str:
        """Return why the class failed for a record, with the values of its options masked."""
        return mask_options(explain_bad_record(error), self._secrets)

    def _decode(self, row: bytes) -> tuple[Schema | None, Any, None]:
        """Decode the bytes of one record with the user's class."""
        schema, value = self._converter.to_connect_data(row)
        if not isinstance(schema, Schema | None):
            raise TypeError(f"to_connect_data has to return a Schema or None first, not {type(schema).__name__}")
        return schema, value, None

    def _encode(self, schema: Schema | None, value: Any) -> bytes:
        """Encode a value with the user's class. If the class fails, raise ValueError with its masked exception."""
        try:
            data = self._converter.from_connect_data(schema, value)
        except Exception as error:  # noqa: BLE001 - a user's code: whatever it raises is this record's fault
            raise ValueError(self._explain(error)) from None
        if not isinstance(data, bytes):
            raise TypeError(f"from_connect_data has to return bytes, not {type(data).__name__}")
        return data
