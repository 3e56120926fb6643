"""An HTTP proxy in front of a registry that lets through who has the password, and can have faults."""

import base64
from contextlib import AbstractContextManager
from dataclasses import replace
from urllib.parse import urlsplit

from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, Proxy, forwarded, running

USER = "archive:secret"
_JSON = (("Content-Type", "application/json"),)


class Gate(Proxy):
    """`status`: what everybody is answered; None lets those with `USER` through."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.url = self.endpoint + urlsplit(upstream).path
        self.status: int | None = None
        self.paths: list[str] = []

    def answer(self, request: HttpRequest) -> HttpAnswer:
        self.paths.append(request.path)
        others = {name: value for name, value in request.headers.items() if name != "authorization"}
        if self.status is not None:
            return HttpAnswer(self.status, _JSON, b'{"error_code":50001,"message":"by the test"}')
        if request.headers.get("authorization") != "Basic " + base64.b64encode(USER.encode()).decode():
            return HttpAnswer(401, _JSON, b'{"error_code":40101,"message":"who are you"}')
        return forwarded(self.upstream, replace(request, headers=others))


def gate(upstream: str) -> AbstractContextManager[Gate]:
    """A running proxy in front of the registry at `upstream`."""
    return running(Gate(upstream))
