"""A small registry with the API of Confluent Platform 8: GUIDs of contents, metadata, rule sets, settings of subjects.

No registry that this machine can run knows GUIDs. Its answers have the shape that confluent-kafka's client reads; its
GUID is a digest of the schema's content, as Confluent's is.
"""

import hashlib
import json
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer

PLACE = ("id", "guid", "subject", "version")

Json = dict[str, Any]


class SmallRegistry(HttpServer):
    """Ids begin behind `last_id`. `lacks` are fields of a schema that it ignores. `guids`: whether it knows GUIDs."""

    def __init__(self, last_id: int = 0, lacks: tuple[str, ...] = (), *, guids: bool = True, salt: str = "") -> None:
        super().__init__()
        self.last_id, self.lacks, self.guids, self.salt = last_id, lacks, guids, salt
        self.schemas: dict[int, Json] = {}
        self.subjects: dict[str, list[int]] = {}
        self.configs: dict[str, Json] = {}
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return self.endpoint

    def register(self, subject: str, text: str, kind: str = "AVRO", **others: Any) -> int:
        """Register a schema, as a client would. Return its id."""
        return int(self._register(subject, {"schema": text, "schemaType": kind, **others})["id"])

    def guid(self, schema_id: int) -> str:
        content = json.dumps([self.salt, self.schemas[schema_id]], sort_keys=True)
        return str(uuid.UUID(bytes=hashlib.md5(content.encode()).digest()))  # noqa: S324

    def answer(self, request: HttpRequest) -> HttpAnswer:
        path = urlsplit(request.path).path
        self.paths.append(f"{request.method} {path}")
        steps = [*map(str, urlsplit(request.target).path.strip("/").split("/"))]
        body = json.loads(request.body or b"{}")
        found = self._tried({"POST": self._post, "PUT": self._put, "GET": self._get}[request.method], steps, body)
        if isinstance(found, int):
            return _answered(404, {"error_code": found, "message": "HTTP 404 Not Found"})
        return _answered(200, found)

    def _tried(self, method: Callable[[list[str], Json], Any], steps: list[str], body: Json) -> Any:
        """What the method answers. A number is the code of an error, with HTTP status 404."""
        try:
            return method(steps, body)
        except LookupError:
            return {"subjects": 40401, "schemas": 40403, "config": 40408}.get(steps[0], 404)

    def _post(self, steps: list[str], body: Json) -> Any:
        match steps:
            case "subjects", subject, "versions":
                return self._register(subject, body)
            case "subjects", subject:
                return self._look_up(subject, self._content(body))
        return 404

    def _put(self, steps: list[str], body: Json) -> Any:
        mode = body.pop("compatibility")
        self.configs["".join(steps[1:])] = {"compatibilityLevel": mode, **body}
        return {"compatibility": mode, **body}

    def _get(self, steps: list[str], body: Json) -> Any:  # noqa: ARG002 - a GET has none
        match steps:
            case "subjects", subject, "versions", *version:
                return self._versions(subject, version)
            case "config", subject:
                return self.configs[subject]
            case ("config",):
                return {"compatibilityLevel": "BACKWARD"}
            case "schemas", "ids", number, *rest:
                return self._places(int(number)) if rest else self._schema(int(number))
            case "schemas", "guids", guid, *rest if self.guids:
                return self._of_guid(guid, is_for_ids=bool(rest))
        return 404

    def _versions(self, subject: str, version: list[str]) -> Any:
        ids = self.subjects[subject]
        if not version:
            return list(range(1, len(ids) + 1))
        return self._place(subject, ids[-1] if version == ["latest"] else ids[int(version[0]) - 1])

    def _places(self, schema_id: int) -> list[Json]:
        places = ((s, ids.index(schema_id) + 1) for s, ids in self.subjects.items() if schema_id in ids)
        return [{"subject": subject, "version": version} for subject, version in places]

    def _of_guid(self, guid: str, *, is_for_ids: bool) -> Any:
        ids = [number for number in self.schemas if self.guid(number) == guid]
        if is_for_ids:
            return [{"context": ".", "id": number} for number in ids]
        return self._schema(ids[0])

    def _content(self, body: Json) -> Json:
        given = {"schemaType": "AVRO", "references": [], **body}
        return {name: value for name, value in given.items() if name not in (*PLACE, *self.lacks)}

    def _register(self, subject: str, body: Json) -> Json:
        content = self._content(body)
        schema_id = next((number for number, each in self.schemas.items() if each == content), None)
        if schema_id is None:
            self.last_id = schema_id = self.last_id + 1
            self.schemas[schema_id] = content
        ids = self.subjects.setdefault(subject, [])
        if schema_id not in ids:
            ids.append(schema_id)
        return {"id": schema_id, **self._guid(schema_id)}

    def _look_up(self, subject: str, content: Json) -> Json:
        ids = [number for number in self.subjects[subject] if self.schemas[number] == content]
        return self._place(subject, ids[0])

    def _place(self, subject: str, schema_id: int) -> Json:
        version = self.subjects[subject].index(schema_id) + 1
        return {"subject": subject, "version": version, "id": schema_id, **self._schema(schema_id)}

    def _schema(self, schema_id: int) -> Json:
        return {**self.schemas[schema_id], **self._guid(schema_id)}

    def _guid(self, schema_id: int) -> Json:
        return {"guid": self.guid(schema_id)} if self.guids else {}


def _answered(status: int, found: Any) -> HttpAnswer:
    return HttpAnswer(status, (("Content-Type", "application/json"),), json.dumps(found).encode())
