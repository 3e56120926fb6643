"""As much of Kubernetes' API as Spark asks for: pods, whose containers are processes of this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kafka_s3_platform_tests.conftest import REPOSITORY
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer

Document = dict[str, Any]

IN_IMAGE = "/opt/kafka-s3"
POD_IP = "127.0.0.3"
_VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
_VERBS_OF_MANY = {"DELETE": "deletecollection", "GET": "list"}


class KubernetesApi(HttpServer):
    """Knows the pod of a driver, and starts those of its executors.

    `folder` stands for the image's /opt/kafka-s3.
    """

    def __init__(self, folder: Path, driver: str) -> None:
        super().__init__()
        self._folder = folder
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._pods: dict[str, Document] = {driver: _make_pod({"metadata": {"name": driver}}, ready)}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.created: list[Document] = []
        self.asked: set[tuple[str, str]] = set()
        """Kinds of objects, and what was asked of them."""

    def stop(self) -> str:
        """End what still runs. Return what executors wrote."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        return "".join(path.read_text() for path in self._folder.glob("*.log"))

    def answer(self, request: HttpRequest) -> HttpAnswer:
        place = urlsplit(request.target)
        parameters = parse_qs(place.query)
        kind, _, name = place.path.partition("/namespaces/")[2].partition("/")[2].partition("/")
        is_watch = parameters.get("watch") == ["true"]
        verb = "watch" if is_watch else (_VERBS if name or request.method == "POST" else _VERBS_OF_MANY)[request.method]
        self.asked.add((kind, verb))
        if is_watch:
            return _tell(HTTPStatus.OK, {})
        match verb:
            case "create":
                return _tell(HTTPStatus.CREATED, self._start(json.loads(request.body)))
            case "get" if name in self._pods:
                return _tell(HTTPStatus.OK, self._look(name))
            case "list":
                return _tell(HTTPStatus.OK, self._list(parameters))
            case "delete" | "deletecollection":
                for found in [name] if name else self._find(parameters):
                    if found in self._processes:
                        self._processes[found].kill()
                    self._pods.pop(found, None)
                return _tell(HTTPStatus.OK, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        return _tell(HTTPStatus.NOT_FOUND, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

    def _start(self, pod: Document) -> Document:
        name = pod["metadata"]["name"]
        self.created.append(pod)
        self._pods[name] = _make_pod(pod, {"phase": "Running", "podIP": POD_IP})
        [container] = pod["spec"]["containers"]
        command = [part.replace(IN_IMAGE, str(self._folder)) for part in (*container["command"], *container["args"])]
        env = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
        env["PYTHONPATH"] = str(REPOSITORY)
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, env=env | dict(_resolve(container["env"], pod, self._folder)), stdout=log, stderr=log
            )
        return self._pods[name]

    def _look(self, name: str) -> Document:
        process = self._processes.get(name)
        if process is not None and process.poll() is not None:
            self._pods[name]["status"]["phase"] = "Failed" if process.returncode else "Succeeded"
        return self._pods[name]

    def _list(self, parameters: Mapping[str, list[str]]) -> Document:
        items = [self._look(name) for name in self._find(parameters)]
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}

    def _find(self, parameters: Mapping[str, list[str]]) -> list[str]:
        wanted = [s for text in parameters.get("labelSelector", []) for s in text.split(",") if "!" not in s]
        labels = {name: pod["metadata"].get("labels", {}) for name, pod in self._pods.items()}
        return [name for name, own in labels.items() if all(s in {f"{k}={v}" for k, v in own.items()} for s in wanted)]


def _make_pod(pod: Document, status: Document) -> Document:
    metadata = {"namespace": "test", "uid": pod["metadata"]["name"], **pod["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "spec": {}, **pod, "metadata": metadata, "status": status}


def _resolve(variables: list[Document], pod: Document, folder: Path) -> Iterator[tuple[str, str]]:
    fields = {"status.podIP": POD_IP, "metadata.name": pod["metadata"]["name"]}
    for variable in variables:
        source = variable.get("valueFrom")
        value = fields[source["fieldRef"]["fieldPath"]] if source else variable.get("value", "")
        # Spark's folder for what spills: a volume of the pod
        yield variable["name"], value.replace("/var/data", str(folder / "data"))


def _tell(status: HTTPStatus, document: Document) -> HttpAnswer:
    return HttpAnswer(status, (("Content-Type", "application/json"),), json.dumps(document).encode())
