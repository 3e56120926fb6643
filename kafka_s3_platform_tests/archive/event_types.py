"""A topic of Debezium's tables and of event types, by its registry."""

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

from kafka_s3_platform.connect.avro.schema import strip_logical_types
from kafka_s3_platform.core.model.schema import ArchivedSchema, SchemaReference, SubjectVersion
from kafka_s3_platform_tests.conftest import REPOSITORY

GOLDEN = REPOSITORY / "kafka_s3_platform_tests" / "golden" / "debezium"
URL = "http://registry:8081"

CUSTOMERS = "dbserver1.inventory.customers.Envelope"
ORDERS = "dbserver1.inventory.orders.Envelope"

ORDERED, PAID = "shop.orders.Created", "shop.payments.Created"

ORDER = {"id": "1", "customer": "c"}
PAYMENT = {"id": "1", "card": "", "iban": ""}


@dataclass(frozen=True)
class Registered:
    """A schema of a subject, and its place there."""

    schema_id: int
    subject: str
    version: int
    text: str
    references: tuple[SchemaReference, ...] = ()

    @property
    def archived(self) -> ArchivedSchema:
        place = SubjectVersion(self.subject, self.version, None)
        return ArchivedSchema(URL, self.schema_id, "AVRO", self.text, (place,), self.references)

    def encode(self, value: Any) -> bytes:
        """The value in the wire format, as fastavro writes it."""
        body = io.BytesIO(b"\0" + self.schema_id.to_bytes(4, "big"))
        body.seek(5)
        whole = [json.loads(BY_ID[reference.schema_id].text) for reference in self.references]
        schema = fastavro.parse_schema(strip_logical_types(whole or json.loads(self.text)))
        fastavro.schemaless_writer(body, schema, value)
        return body.getvalue()


def golden(name: str, schema_id: int, subject: str, version: int = 1) -> Registered:
    return Registered(schema_id, subject, version, (GOLDEN / f"{name}.avsc").read_text())


SCHEMAS = {
    "customers-1": golden("customers-1", 21, CUSTOMERS),
    "customers-2": golden("customers-2", 22, CUSTOMERS, 2),
    "orders-1": golden("orders-1", 23, ORDERS),
}
"""By RecordNameStrategy: the tables of one topic have subjects of their own."""


def event_type(name: str, *fields: str) -> str:
    """The schema of an event type. Fields behind the first one have a default."""
    first, *others = ({"name": field, "type": "string"} for field in fields)
    given = [first, *({**field, "default": ""} for field in others)]
    return json.dumps({"type": "record", "name": name, "fields": given})


TYPES = (
    Registered(31, f"shop-{ORDERED}", 1, event_type(ORDERED, "id")),
    Registered(32, f"shop-{PAID}", 1, event_type(PAID, "id", "card")),
    Registered(33, f"shop-{PAID}", 2, event_type(PAID, "id", "card", "iban")),
    Registered(34, f"shop-{ORDERED}", 2, event_type(ORDERED, "id", "customer")),
)
"""By TopicRecordNameStrategy: event types of one topic, whose short names are the same."""


EITHER = Registered(
    35,
    "shop-value",
    1,
    json.dumps([ORDERED, PAID]),
    (SchemaReference(ORDERED, TYPES[3].subject, 2, 34), SchemaReference(PAID, TYPES[2].subject, 2, 33)),
)
"""By TopicNameStrategy: a union of references."""


BY_ID = {schema.schema_id: schema for schema in (*SCHEMAS.values(), *TYPES, EITHER)}


@dataclass(frozen=True)
class Event:
    """A value of a topic: its schema, what it is in JSON, and its bytes."""

    schema: Registered | None
    plain: Any
    raw: bytes | None


def events(*tables: str) -> list[Event]:
    """The change events of tables, which take turns."""
    rows = [[json.loads(line) for line in (GOLDEN / f"{table}.jsonl").read_text().splitlines()] for table in tables]
    longest = max(map(len, rows))
    return [change_of(row[at]) for at in range(longest) for row in rows if at < len(row)]


def change_of(line: Mapping[str, Any]) -> Event:
    if line["schema"] is None:
        return Event(None, None, None)
    schema = SCHEMAS[line["schema"]]
    return Event(schema, line["event"], schema.encode(with_bytes(line["event"])))


def with_bytes(event: Any) -> Any:
    """The event with the bytes of its decimals, as Avro has them."""
    if isinstance(event, list):
        return [with_bytes(item) for item in event]
    if not isinstance(event, dict):
        return event
    found = {name: with_bytes(value) for name, value in event.items()}
    for name in {"total", "value"} & found.keys():
        found[name] = base64.b64decode(found[name])
    return found


def typed(schema: Registered, **value: str) -> Event:
    return Event(schema, value, schema.encode(value))


FEED = [
    typed(TYPES[0], id="o1"),
    typed(TYPES[2], id="p1", card="c", iban="i"),
    typed(TYPES[3], id="o2", customer="ann"),
    typed(TYPES[1], id="p2", card="d"),
    typed(TYPES[0], id="o3"),
]


UNION = [
    Event(EITHER, {ORDERED: ORDER, PAID: None}, EITHER.encode((ORDERED, ORDER))),
    Event(EITHER, {ORDERED: None, PAID: PAYMENT}, EITHER.encode((PAID, PAYMENT))),
]
