"""A registry with versions, soft deletion, modes and contexts, which answers as Confluent's 8.1.5 did by hand.

No repository that this machine reaches serves Confluent's own.
"""

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kafka_s3_platform.connect.converters.registry_contents import DEFAULT_CONTEXT, find_context
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer

Json = dict[str, Any]
Place = tuple[str, int]


class RefusalError(Exception):
    """An answer that is an error: HTTP status and the registry's code."""


class ImportingRegistry(HttpServer):
    """`most_imports` versions are imported, then it fails once: as if somebody had killed the client.

    Schemas in `incompatible` are registered only where the compatibility is NONE.
    """

    def __init__(self, *, modes: bool = True, most_imports: int | None = None) -> None:
        super().__init__()
        self.modes: dict[str, str] | None = {"": "READWRITE"} if modes else None
        self.configs: dict[str, Json] = {"": {"compatibilityLevel": "BACKWARD"}}
        self.versions: dict[Place, Json] = {}
        self.deleted: set[Place] = set()
        self.most_imports = most_imports
        self.most_listed = 20_000
        self.incompatible: set[str] = set()
        self.writes: list[str] = []

    def register(self, subject: str, text: str, **others: Any) -> int:
        """Register the next version of a subject, as a client would. Return its id."""
        return int(self._register(subject, {"schema": text, **others})["id"])

    def answer(self, request: HttpRequest) -> HttpAnswer:
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.target).query).items()}
        steps = urlsplit(request.target).path.strip("/").split("/")
        body = json.loads(request.body or b"{}")
        if request.method != "GET" and not (request.method == "POST" and len(steps) == 2):
            self.writes.append(f"{request.method} {'/'.join(steps)}")
        try:
            found = self._answer(request.method, steps, query, body)
        except RefusalError as refusal:
            status, code = refusal.args
            return _answered(status, {"error_code": code, "message": "refused"})
        except LookupError:
            return _answered(404, {"error_code": 40401, "message": "not there"})
        return _answered(200, found)

    def _answer(self, method: str, steps: list[str], query: dict[str, str], body: Json) -> Any:  # noqa: C901, PLR0911 - the API
        is_deleted_shown = query.get("deleted", "").lower() == "true"
        match method, *steps:
            case "GET", "subjects":
                names = sorted({subject for subject, _ in self._list_places(is_deleted_shown)})
                return names[int(query.get("offset", 0)) :][: self.most_listed]
            case "GET", "subjects", subject, "versions":
                numbers = [number for name, number in self._list_places(is_deleted_shown) if name == subject]
                return numbers or _refuse(404, 40401)
            case "GET", "subjects", subject, "versions", number:
                return {"subject": subject, "version": int(number), **self.versions[subject, int(number)]}
            case "POST", "subjects", subject, "versions":
                return self._register(subject, body)
            case "POST", "subjects", subject:
                return self._look_up(subject, body)
            case "DELETE", "subjects", subject, "versions", number:
                return self._delete((subject, int(number)))
            case "GET", "schemas", "ids", number:
                return next(schema for schema in self.versions.values() if schema["id"] == int(number))
            case _, "config", *scope:
                return self._configure(method, "".join(scope), body)
            case _, "mode", *scope if self.modes is not None:
                return self._change_mode(self.modes, method, "".join(scope), body)
        return _refuse(404, 404)

    def _list_places(self, is_deleted_shown: bool) -> list[Place]:
        return [place for place in sorted(self.versions) if is_deleted_shown or place not in self.deleted]

    def _configure(self, method: str, scope: str, body: Json) -> Json:
        if method == "PUT":
            level = {"compatibilityLevel": body.pop("compatibility")} if "compatibility" in body else {}
            self.configs[scope] = self.configs.get(scope, {}) | level | body
        if scope not in self.configs:
            raise RefusalError(404, 40408)
        return self.configs.pop(scope) if method == "DELETE" else self.configs[scope]

    def _change_mode(self, modes: dict[str, str], method: str, scope: str, body: Json) -> Json:
        if method == "PUT":
            modes[scope] = body["mode"]
        if method == "DELETE":
            return {"mode": modes.pop(scope)}
        if scope not in modes:
            raise RefusalError(404, 40409)
        return {"mode": modes[scope]}

    def _register(self, subject: str, body: Json) -> Json:
        is_import = (self.modes or {}).get(subject) == "IMPORT"
        if is_import != ("id" in body):
            raise RefusalError(422, 42205)
        content = {"schemaType": "AVRO", "references": [], **body}
        if not {*_list_references(subject, content)} <= self.versions.keys():
            raise RefusalError(422, 42201)
        if is_import:
            if self.most_imports == 0:
                self.most_imports = None
                raise RefusalError(422, 42201)
            self.most_imports = self.most_imports and self.most_imports - 1
            number = content.pop("version")
            # What has this version already is replaced. Its id leads to the new schema then.
            self.versions.pop((subject, number), None)
            self.deleted.discard((subject, number))
        else:
            level = self.configs.get(subject, self.configs[""])["compatibilityLevel"]
            if content["schema"] in self.incompatible and level != "NONE":
                raise RefusalError(409, 409)
            number = max([0, *(number for name, number in self.versions if name == subject)]) + 1
            content["id"] = self._find_id(subject, content)
        return self.versions.setdefault((subject, number), content)

    def _delete(self, place: Place) -> int:
        live = self.versions.keys() - self.deleted
        if any(place in _list_references(subject, self.versions[subject, number]) for subject, number in live):
            raise RefusalError(422, 42206)
        self.deleted.add(place)
        return place[1]

    def _find_id(self, subject: str, content: Json) -> int:
        here = [s for (name, _), s in self.versions.items() if find_context(name) == find_context(subject)]
        same = [schema["id"] for schema in here if {**schema, "id": 0} == {**content, "id": 0}]
        return int(same[0] if same else max([0, *(schema["id"] for schema in here)]) + 1)

    def _look_up(self, subject: str, body: Json) -> Json:
        content = {"schemaType": "AVRO", "references": [], **body}
        for (name, number), schema in self.versions.items():
            is_live = (name, number) not in self.deleted
            if name == subject and is_live and {**schema, "id": 0} == {**content, "id": 0}:
                return {"subject": name, "version": number, **schema}
        raise RefusalError(404, 40403)


def _list_references(subject: str, content: Json) -> list[Place]:
    """Return what a schema of the subject refers to: names without a context are of the subject's own."""
    context = find_context(subject)
    prefix = "" if context == DEFAULT_CONTEXT else f":{context}:"
    return [
        (name if name.startswith(":.") else f"{prefix}{name}", version)
        for name, version in ((r["subject"], r["version"]) for r in content["references"])
    ]


def _refuse(status: int, code: int) -> Any:
    raise RefusalError(status, code)


def _answered(status: int, content: Any) -> HttpAnswer:
    return HttpAnswer(status, (("Content-Type", "application/json"),), json.dumps(content).encode())
