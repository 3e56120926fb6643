"""Plug-ins that say in their errors what they were given in confidence, as carelessly written ones do."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kafka_s3_platform.connect.transforms import MappedRecord, RecordMapper
from kafka_s3_platform.core.errors import PermanentError, TransientError
from kafka_s3_platform.core.model.connect import ConnectBatch, Outcome, RecordFailure
from kafka_s3_platform.core.store.credentials import Credentials


def fail(options: Mapping[str, str]) -> None:
    """Fails in the way that the option `how` says, quoting all options."""
    said = f"cannot log in with {dict(options)}"
    match options["how"]:
        case "value":
            raise ValueError(said)
        case "chain":
            try:
                raise ConnectionError(said)
            except ConnectionError as error:
                raise RuntimeError("the lookup failed") from error
        case "os":
            raise ConnectionError(said)
        case "attribute":
            raise AttributeError(said)
        case "transient":
            raise TransientError(said)
        case "permanent":
            raise PermanentError(said)


HOW = ("value", "chain", "os", "attribute", "transient", "permanent")


class Vault(RecordMapper):
    """Fails on each record, or, with `when` new, already as it is made."""

    public_options = frozenset({"how", "when"})

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        if options.get("when") == "new":
            fail(options)

    def map(self, record: MappedRecord) -> Iterable[Any]:
        fail(self.options)
        return [record]


class Cipher:
    """A converter that fails on each value."""

    def __init__(self, options: Mapping[str, str], topic: str, is_key: bool) -> None:  # noqa: ARG002 - as it is called
        self.options = options

    def to_connect_data(self, data: bytes) -> tuple[None, bytes]:
        fail(self.options)
        return None, data


class Batches:
    """Fails on each batch, or tells a failure of each record."""

    public_options = frozenset({"how"})

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options

    def apply(self, batch: ConnectBatch) -> Outcome:
        fail(self.options)
        said = f"cannot log in with {dict(self.options)}"
        failed = tuple(RecordFailure(int(n), "TRANSFORMATION", "Batches", "LoginError", said) for n in batch.offsets)
        return Outcome(batch.take(np.empty(0, np.intp)), failed)


class Provider:
    """Fails when it is asked for credentials, or, with `when` new, already as it is made."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options
        if options.get("when") == "new":
            fail(options)

    def credentials(self) -> Credentials:
        fail(self.options)
        return Credentials(self.options["id"], self.options["secret"], self.options.get("token"))
