"""The request of a restore as its plan stores it, compared with a later request, and read as typed facts."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from typing import Any

import msgspec

from kafka_s3_platform.core.config.settings import (
    ConnectorConfig,
    ConverterSettings,
    PredicateSettings,
    RegistrySettings,
    TransformSettings,
)
from kafka_s3_platform.core.errors import IntegrityError, PreflightError
from kafka_s3_platform.core.extensions import load_extension
from kafka_s3_platform.core.restore.request import Offsets, Outgoing, RecordFilter, RestoreRequest

_PLACE = re.compile(r"[0-9a-f]{8}")
"""The form of a place. Moved documents keep their old place, so only the form is checked."""


@dataclass(frozen=True, slots=True)
class PredicateFacts:
    """A predicate of a transform."""

    alias: str
    type: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TransformFacts:
    """A transform without secret values."""

    alias: str
    type: str
    options: Mapping[str, str]
    predicate: PredicateFacts | None = None
    negate: bool = False


@dataclass(frozen=True, slots=True)
class OutgoingFacts:
    """The requested changes to records before they are sent. The fields are as in `Outgoing`."""

    partitioning: str = "source"
    transforms: tuple[TransformFacts, ...] = ()


class RecordFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The requested records of the window. The fields are as in `RecordFilter`, but keys are text."""

    keys: tuple[str, ...] = ()
    key_prefixes: tuple[str, ...] = ()
    key_regex: str | None = None
    predicate: str | None = None
    sql: str | None = None
    latest_per_key: bool = False


@dataclass(frozen=True)
class RequestFacts:
    """The facts of the request in a stored plan, as far as code depends on them.

    A plan keeps its request as the JSON of `collect_request_terms`. This class is the JSON, read once. `after` is the
    restore before this one. `records` is None if every record of the window was requested.
    """

    connector: str = ""
    from_time: str | None = None
    to_time: str | None = None
    from_offset: int | Mapping[str, int] | None = None
    to_offset: int | Mapping[str, int] | None = None
    windows: tuple[tuple[str, str], ...] | None = None
    after: str | None = None
    records: RecordFacts | None = None
    outgoing: OutgoingFacts | None = None

    @staticmethod
    def of(terms: Mapping[str, Any], plan: str) -> "RequestFacts":
        """Read the facts from the terms of the plan at key `plan`. Raises IntegrityError if they are no restore's."""
        try:
            return msgspec.convert(terms, RequestFacts)
        except msgspec.ValidationError as err:
            raise IntegrityError(f"restore plan {plan} has terms that are not those of a restore: {err}") from err

    @property
    def transforms(self) -> tuple[TransformFacts, ...]:
        return self.outgoing.transforms if self.outgoing else ()

    @property
    def partitioning(self) -> str:
        """The distribution of records, `source` if the plan does not name one."""
        return self.outgoing.partitioning if self.outgoing else "source"

    @property
    def chooses(self) -> bool:
        """True if a filter or a transform decides by a record's content whether it is restored."""
        return self.records is not None or bool(self.transforms)

    @property
    def keeps_numbers(self) -> bool:
        """True if records keep the number of their kafka partition."""
        return self.partitioning == "source"

    @property
    def is_snapshot(self) -> bool:
        """True if each key is restored only once."""
        return self.records is not None and self.records.latest_per_key

    @property
    def windows_named(self) -> tuple[str, ...]:
        """The names of the terms because of which an object may have been sent only in part."""
        return tuple(name for name in _PARTLY if getattr(self, name) is not None)


_PARTLY = ("from_time", "to_time", "windows", "from_offset", "to_offset")


def hash_place(config: ConnectorConfig) -> str:
    """Return a short hash of the place of a restore's documents.

    It distinguishes restores of the same id whose documents are in different buckets or folders.
    """
    store = config.restore_store
    where = [store.endpoint_url, store.bucket, config.archive.restore_dir]
    return hashlib.sha256(json.dumps(where).encode()).hexdigest()[:8]


def check_plan_place(request: RestoreRequest, place: str) -> None:
    """Raise IntegrityError if a plan's place has an illegal form, because transactional ids are made of it."""
    check_plan_field(request, "place", place, place if _PLACE.fullmatch(place) else hash_place(request.config))


def check_plan_field(request: RestoreRequest, name: str, planned: object, expected: object) -> None:
    """Raise IntegrityError if a field of a plan differs from the value made from the request."""
    if planned != expected:
        raise IntegrityError(
            f"restore plan {request.documents.plan} was changed by somebody: its {name} is {planned}, but the "
            f"request makes it {expected}. Restore to another topic under another restore id"
        )


def check_terms(
    request: RestoreRequest, requested: Mapping[str, Any], terms: Mapping[str, Any], created_at: str
) -> None:
    """Check that a stored plan was made for the same terms.

    Raises:
        PreflightError: the restore id was used for something else before. Each difference is named.
    """
    # Both sides are as JSON stores them, where tuples are lists.
    stored, now = (json.loads(json.dumps(side_terms)) for side_terms in (terms, requested))
    differences = [
        f"{name} was {stored.get(name)}, is now {value}" for name, value in now.items() if stored.get(name) != value
    ]
    if differences:
        raise PreflightError(
            f"restore id {request.restore_id} belongs to another restore ({request.documents.plan} of {created_at}): "
            f"{'; '.join(differences)}. Make the same request to resume that restore, or use another restore id"
        )


def collect_request_terms(request: RestoreRequest) -> dict[str, Any]:
    """Return the terms that identify a restore, as JSON."""
    return {
        "connector": request.config.name,
        "topic": request.topic,
        "to_topic": request.to_topic,
        "topics_regex": request.topics_regex,
        "from_time": _write_utc(request.from_time),
        "to_time": _write_utc(request.to_time),
        "from_offset": _write_offsets(request.from_offset),
        "to_offset": _write_offsets(request.to_offset),
        "kafka_partitions": None if request.kafka_partitions is None else sorted(set(request.kafka_partitions)),
        "allow_unsendable_timestamps": request.allow_unsendable_timestamps,
        "windows": [[_write_utc(start), _write_utc(end)] for start, end in sorted(request.windows)] or None,
        "records": _collect_record_terms(request.records),
        "outgoing": _collect_outgoing_terms(request.outgoing, request.restore_id),
    }


def _collect_record_terms(records: RecordFilter) -> dict[str, Any] | None:
    """Return the set fields of the filter, or None if none is set."""
    terms = asdict(records) | {
        name: [_write_key(k) for k in getattr(records, name)] for name in ("keys", "key_prefixes")
    }
    return {name: value for name, value in terms.items() if value not in ([], None, False)} or None


def _collect_outgoing_terms(outgoing: Outgoing, restore_id: str) -> dict[str, Any] | None:
    """Return the fields that differ from their defaults, without secrets, or None if none differs."""
    default = Outgoing()
    changed = [f.name for f in fields(Outgoing) if getattr(outgoing, f.name) != getattr(default, f.name)]
    return {name: _make_term(getattr(outgoing, name), restore_id) for name in changed} or None


def _make_term(value: Any, restore_id: str) -> Any:
    """Return a field of `Outgoing` as JSON, with secrets as digests."""
    if isinstance(value, tuple):
        return [_make_step_terms(step, restore_id) for step in value]
    # Only the URL: credentials are secret, and may change between two runs.
    if isinstance(value, RegistrySettings):
        return value.url
    if isinstance(value, ConverterSettings):
        registry = value.registry and value.registry.url
        terms = value.model_dump(mode="json", exclude={"registry", "plugin_options"}) | {"registry": registry}
        if not value.plugin_options:
            return terms
        options = {name: secret.get_secret_value() for name, secret in value.plugin_options.items()}
        return terms | {"plugin_options": _mask_options(value.format, options, restore_id)}
    return value


def _make_step_terms(step: TransformSettings | PredicateSettings, restore_id: str) -> dict[str, Any]:
    """Return a transform, or its predicate, as JSON, with secrets as digests."""
    options = {name: value.get_secret_value() for name, value in step.options.items()}
    terms = {"alias": step.alias, "type": step.type, "options": _mask_options(step.type, options, restore_id)}
    if isinstance(step, PredicateSettings):
        return terms
    predicate = step.predicate and _make_step_terms(step.predicate, restore_id)
    return terms | {"predicate": predicate, "negate": step.negate}


def _mask_options(type_: str, options: Mapping[str, str], restore_id: str) -> dict[str, str]:
    """Return the options, with secret values as digests. Equal values of one restore have equal digests."""
    find_public_options = load_extension("find_public_options")
    public = find_public_options(type_)
    return {name: value if name in public else _digest_secret(value, restore_id) for name, value in options.items()}


def _digest_secret(value: str, restore_id: str) -> str:
    """Hash a secret, slowly and with a salt, so readers of the bucket cannot guess the value from the digest."""
    content = value.encode(errors="backslashreplace")
    return f"scrypt:{hashlib.scrypt(content, salt=restore_id.encode(), n=2**14, r=8, p=1, dklen=16).hex()}"


def _write_key(key: bytes) -> str:
    """Write a key as text, or as hex if it is not UTF-8."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return f"hex:{key.hex()}"


def _write_utc(moment: datetime | None) -> str | None:
    """Write a moment in UTC, so the same moment in another timezone makes the same restore."""
    return None if moment is None else moment.astimezone(timezone.utc).isoformat()


def _write_offsets(offsets: Offsets) -> Any:
    """Write offsets for JSON, whose objects have text as keys: here, the kafka partitions."""
    if isinstance(offsets, Mapping):
        return {str(p): o for p, o in sorted(offsets.items())}
    return offsets
