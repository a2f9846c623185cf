"""`nmt serve`: the API and the page over HTTP.

The event loop reads, checks and answers; the batcher's one thread translates. So that nobody can keep others waiting,
a request must come whole within seconds, its size, lines and line lengths are limited before anything is translated,
what a client no longer waits for is dropped, and large answers are written in a thread. The page asks for nothing that
this server does not have, which its Content-Security-Policy enforces.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from importlib import resources
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from nmt.decoding.translator import Translation
from nmt.errors import RequestError, WorkError
from nmt.files import cause_of
from nmt.serving import protocol
from nmt.serving.batcher import Batcher, Busy, TooLong
from nmt.serving.metrics import CONTENT_TYPE, Metrics
from nmt.serving.protocol import ApiError, DetectParameters, Limits, TranslateParameters
from nmt.serving.served import Served
from nmt.training.console import one_line
from nmt.training.session import say

PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/answer.js": ("answer.js", "text/javascript"),
}
HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
}
MOST_CONNECTIONS = 500
"""At once; below the number of files that a process may commonly have open."""
SHUTDOWN_SECONDS = 30
"""In which running requests are answered after a signal."""
LONGEST_MESSAGE = 300  # characters

T = TypeVar("T")


class ClientGone(Exception):
    """Nobody waits for the answer."""


def build_app(models: Sequence[Served], limits: Limits, origins: Sequence[str] = ()) -> FastAPI:
    """The application, translating from its startup to its shutdown; pages of these origins may use it."""
    metrics = Metrics()
    batcher = Batcher(limits.waiting_lines, limits.line_characters, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        await asyncio.to_thread(batcher.stop)

    # Their pages load scripts from elsewhere; /openapi.json is there for programs.
    app = FastAPI(title="nmt", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(Watched, metrics=metrics, known={*PAGE, *_PATHS})  # around all others
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(ClientGone, _gone)
    _add_page(app)
    _add_translation(app, models, limits, batcher)
    _add_facts(app, models, limits)

    @app.get("/health")
    async def health() -> Response:
        return _json({"status": "ok"}) if batcher.alive else _error(503, "the thread that translates has ended")

    @app.get("/metrics")
    async def exposition() -> Response:
        return Response(metrics.text(batcher.waiting), media_type=CONTENT_TYPE)

    return app


def build_server(models: Sequence[Served], limits: Limits, origins: Sequence[str] = ()) -> uvicorn.Server:
    """The server, to be run with a listening socket."""
    config = uvicorn.Config(
        build_app(models, limits, origins),
        http=PromptProtocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level="critical",  # what a client does wrong is answered, and counted, not logged
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    return uvicorn.Server(config)


def serve(models: Sequence[Served], host: str, port: int, limits: Limits, origins: Sequence[str]) -> None:
    """Serves until a signal comes, and then answers what has been asked.

    Raises:
        WorkError: it cannot listen there.
    """
    listener = listen(host, port)
    address, chosen, *_ = listener.getsockname()
    say(f"serving {', '.join(model.name for model in models)} on http://{_shown(address)}:{chosen} (Ctrl+C ends it)")
    if not _is_loopback(address):
        say(f"whoever reaches {_shown(address)} can use it: there are no accounts and there is no encryption")
    build_server(models, limits, origins).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises WorkError where there can be none."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise WorkError(f"serve: cannot listen on {_shown(host)}:{port}: {cause_of(error)}") from error


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


# Routes ----------------------------------------------------------------------------------------------------------

_PATHS = (
    "/translate",
    "/detect",
    "/languages",
    "/models",
    "/frontend/settings",
    "/health",
    "/metrics",
    "/openapi.json",
)


def _add_page(app: FastAPI) -> None:
    folder = resources.files("nmt.serving") / "web"
    for path, (name, kind) in PAGE.items():
        route = _file((folder / name).read_bytes(), kind)
        app.add_api_route(path, route, methods=["GET", "HEAD"], include_in_schema=False)


def _file(content: bytes, kind: str) -> Callable[[], Coroutine[Any, Any, Response]]:
    async def file() -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return file


def _add_translation(app: FastAPI, models: Sequence[Served], limits: Limits, batcher: Batcher) -> None:
    schema = TranslateParameters.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded")
    extra = {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}

    @app.post("/translate", openapi_extra=extra)
    async def translate(request: Request) -> Response:
        parameters = protocol.checked(TranslateParameters, await protocol.read_parameters(request, limits))
        model = protocol.choose_model(models, parameters)
        if parameters.alignments and not model.translator.attends:
            raise ApiError(400, f"{model.name} does not attend: it has no alignments")
        texts = protocol.lines_of([parameters.q] if isinstance(parameters.q, str) else parameters.q, limits)
        lines = [line for text in texts for line in text]
        work = batcher.translate(model, lines, parameters.alternatives + 1, parameters.alignments)
        try:
            found = iter(await _unless_gone(request, work))
        except Busy:
            raise ApiError(503, f"too many lines wait: this server keeps at most {limits.waiting_lines}") from None
        except TooLong as error:
            message = f"line {error.line} has {error.pieces} pieces; at most {batcher.most_pieces} are translated"
            raise ApiError(413, f"Invalid request: {message}") from None
        except RequestError as error:
            raise ApiError(400, str(error)) from error
        except WorkError as error:
            raise ApiError(500, str(error)) from error
        answers: list[list[list[Translation]]] = [[next(found) for _ in text] for text in texts]
        return await asyncio.to_thread(lambda: _json(protocol.answer(parameters, model, answers)))

    @app.post("/detect")
    async def detect(request: Request) -> Response:
        protocol.checked(DetectParameters, await protocol.read_parameters(request, limits))
        return _json([protocol.detected(source) for source in dict.fromkeys(model.source for model in models)])


def _add_facts(app: FastAPI, models: Sequence[Served], limits: Limits) -> None:
    def language(code: str) -> dict[str, str]:
        return {"code": code, "name": protocol.language_name(code)}

    @app.get("/languages")
    async def languages() -> Response:
        return _json(protocol.languages(models))

    @app.get("/models")
    async def runs() -> Response:
        return _json(
            [
                {
                    "name": model.name,
                    "architecture": model.architecture,
                    "parameters": model.parameters,
                    "attends": model.translator.attends,
                    "beam_size": model.translator.search.beam_size,
                    "source": language(model.source),
                    "target": language(model.target),
                }
                for model in models
            ]
        )

    @app.get("/frontend/settings")
    async def settings() -> Response:
        return _json(
            {
                "charLimit": limits.line_characters,
                "frontendTimeout": 500,
                "apiKeys": False,
                "keyRequired": False,
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": {"source": language(models[0].source), "target": language(models[0].target)},
            }
        )


# Answers ---------------------------------------------------------------------------------------------------------


def _json(content: Any) -> Response:
    return Response(json.dumps(content, ensure_ascii=False), media_type="application/json")


def _error(status: int, message: str) -> Response:
    headers = {"retry-after": "1"} if status == 503 else {}
    if status in (408, 413):  # there may be more of the request to come, which nobody is going to read
        headers["connection"] = "close"
    # With escapes: the message may quote what is no Unicode.
    content = json.dumps({"error": message[:LONGEST_MESSAGE]})
    return Response(content, status, media_type="application/json", headers=headers)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        response = _error(error.status_code, str(error.detail))
        response.headers.update(error.headers or {})
        return response
    assert isinstance(error, ApiError)
    return _error(error.status, str(error))


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # as in nginx; nobody reads it, it is counted


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, or ClientGone as soon as the client, whose request has come whole, has left."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.wait({task, gone})  # whoever learns that the client has left may rely on its lines being dropped


async def _left(request: Request) -> None:
    """Returns when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Watched:
    """Around the application: counts what it answers, adds headers, and makes one line of an unforeseen error."""

    def __init__(self, app: ASGIApp, metrics: Metrics, known: set[str]) -> None:
        self.app = app
        self.metrics = metrics
        self.known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS.items()]
            await send(message)

        try:
            await self.app(scope, receive, counted)
        except Exception as error:
            say(f"nmt: error: {one_line(f'{type(error).__name__}: {error}')}")
            if not status:
                await _error(500, "the server has failed; its log says how")(scope, receive, counted)
        finally:
            path = scope["path"] if scope["path"] in self.known else "other"
            self.metrics.requests[path, status] += 1
            if path == "/translate" and status < 400:
                self.metrics.request_seconds.observe(time.monotonic() - began)


class PromptProtocol(H11Protocol):
    """Closes a connection on which a request has begun, or none has, and is not there with all its headers in time.

    uvicorn limits how long a connection may be idle between two requests, and nothing else.
    """

    SECONDS = 10.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As asyncio has it."""
        super().connection_made(transport)
        self._overdue: asyncio.TimerHandle | None = None
        self._after: object = self  # the request after which the next one is expected, or None; now neither
        self._expect()

    def data_received(self, data: bytes) -> None:
        """As asyncio has it."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio has it."""
        if self._overdue is not None:
            self._overdue.cancel()
        super().connection_lost(exc)

    def _expect(self) -> None:
        """Another request must come; dribbling does not prolong the time that it has."""
        last = self.cycle
        if self._after is last:
            return
        self._after = last

        def close_if_none() -> None:
            if self.cycle is last and not self.transport.is_closing():
                self.transport.close()

        self._overdue = self.loop.call_later(self.SECONDS, close_if_none)
