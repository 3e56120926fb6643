"""Matches inputs with outputs, as in Connect, when a file is loaded."""

from kafka_s3_platform.config.formats import JSON_WITH_SCHEMA, find_format
from kafka_s3_platform.config.keys.converters import ConverterSettings

FIELDLESS = ("BYTES", "STRING")
"""Inputs that have no fields."""


def find_input(converter: ConverterSettings) -> str:
    """Return a converter's row of the matrix."""
    if converter.format == "JSON" and converter.schemas_enable:
        return JSON_WITH_SCHEMA
    return converter.format


def explain_refusal(converter: ConverterSettings, output: str) -> str | None:
    """Return why the format `output` cannot hold the values of a converter. None: it can."""
    row = find_input(converter)
    reason = find_format(output).refused_inputs.get(row)
    return reason and f"{row} cannot be written as {output}: {reason}"
