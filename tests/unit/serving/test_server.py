"""The API over HTTP: LibreTranslate's clients as they are, what is refused and how, and that nobody disturbs others."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("fastapi", reason="the optional package FastAPI is not installed")
pytest.importorskip("uvicorn", reason="the optional package uvicorn is not installed")

from nmt.decoding.translator import TextTranslator
from nmt.errors import RequestError, WorkError
from nmt.serving import served, server
from nmt.serving.protocol import MOST_ALTERNATIVES, Limits
from nmt.serving.served import Served, open_served, served_names
from serving import WAIT, HeldTranslator, ask, connected, everything, get, held_model, post, serving

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
LINES = ["The cat sees a horse.", "", "My sister draws the summer.", "the\tcat ||| <s> xyz", "Œuvre 😀 & 100 % +"]
SMALL = Limits(body_bytes=500, body_seconds=0.5, line_characters=30, waiting_lines=4)


def free_model(name: str = "free", source: str = "en", target: str = "fr") -> Any:
    """One that gives capitals at once."""
    model = held_model(name, source=source, target=target)
    assert isinstance(model.translator, HeldTranslator)
    model.translator.free.set()
    return model


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server that gives capitals, with small limits."""
    with serving([free_model()], SMALL) as found:
        yield found


@pytest.fixture(scope="module")
def trained(trained_run: Path) -> Iterator[tuple[str, TextTranslator]]:
    """A server of a trained run, and its translator."""
    models = open_served([trained_run])
    with serving(models) as found:
        yield found, models[0].translator


# Clients ---------------------------------------------------------------------------------------------------------


def test_libretranslatepy(trained: tuple[str, TextTranslator]) -> None:
    package = pytest.importorskip("libretranslatepy")
    address, translator = trained
    client = package.LibreTranslateAPI(address)
    for line, found in zip(LINES, translator.translate(LINES), strict=True):
        if line:  # which LibreTranslate refuses
            assert client.translate(line, "en", "fr", timeout=WAIT) == found.text
    assert client.translate(LINES[0], "auto", "fr") == translator.translate(LINES[:1])[0].text
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["fr"]},
        {"code": "fr", "name": "French", "targets": []},
    ]
    assert client.detect("The cat") == [{"confidence": 0.0, "language": "en"}]


def test_deep_translator(trained: tuple[str, TextTranslator]) -> None:
    package = pytest.importorskip("deep_translator")
    address, translator = trained
    client = package.LibreTranslator(source="English", target="French", api_key="any", custom_url=f"{address}/")
    assert client.translate_batch(LINES) == [found.text for found in translator.translate(LINES)]
    with pytest.raises(package.exceptions.ServerException):
        package.LibreTranslator(source="fr", target="en", api_key="any", custom_url=f"{address}/").translate("a")


def test_what_is_asked_in_different_ways_is_answered_alike(trained: tuple[str, TextTranslator]) -> None:
    address, translator = trained
    expected = [found.text for found in translator.translate(LINES)]
    assert ask(address, q=LINES) == (200, {"translatedText": expected})
    assert ask(address, q="\r\n".join(LINES)) == (200, {"translatedText": "\n".join(expected)})
    parameters = urlencode({"q": LINES, "source": "en", "target": "fr", "format": "text", "api_key": ""}, doseq=True)
    assert post(address, "/translate", parameters.encode(), FORM) == (200, {"translatedText": expected})
    assert post(address, f"/translate?{parameters}", b"") == (200, {"translatedText": expected})
    assert ask(address, q=LINES[0], source="EN-us", target="fr_FR") == (200, {"translatedText": expected[0]})


def test_alternatives_scores_and_alignments(trained: tuple[str, TextTranslator]) -> None:
    address, translator = trained
    search = dataclasses.replace(translator.search, n_best=4)
    [best] = translator.n_best([LINES[0]], search, alignments=True)
    status, found = ask(address, q=LINES[0], alternatives=3, alignments=True)
    assert status == 200
    assert found["translatedText"] == best[0].text
    assert found["alternatives"] == list(dict.fromkeys(each.text for each in best))[1:]
    [hypotheses] = found["lines"]
    assert [each["text"] for each in hypotheses] == [each.text for each in best]
    assert [each["score"] for each in hypotheses] == pytest.approx([each.score for each in best], abs=1e-4)
    for each, expected in zip(hypotheses, best, strict=True):
        assert expected.alignment is not None
        assert each["alignment"] == json.loads(expected.alignment.words().to_json())


def test_an_answer_has_the_form_of_the_question(address: str) -> None:
    one = {"text": "A", "score": 0.0, "cut": False}
    two = {"text": "A 1", "score": -1.0, "cut": False}
    assert ask(address, q="a", alternatives=1, scores=True, source="auto") == (
        200,
        {
            "translatedText": "A",
            "alternatives": ["A 1"],
            "detectedLanguage": {"confidence": 0.0, "language": "en"},
            "lines": [[one, two]],
            "model": "free",
        },
    )
    status, found = ask(address, q=["a\na", "a"], alternatives=1, scores=True, source="auto")
    assert status == 200
    assert found["translatedText"] == ["A\nA", "A"]
    assert found["alternatives"] == [["A 1\nA 1"], ["A 1"]]
    assert [each["language"] for each in found["detectedLanguage"]] == ["en", "en"]
    assert found["lines"] == [[[one, two], [one, two]], [[one, two]]]


def test_models_are_chosen_by_name_and_by_languages() -> None:
    models = [free_model("first"), free_model("second"), free_model("back", "fr", "en")]
    models.append(free_model("german", "de", "en"))
    with serving(models) as address:
        chosen = {
            (source, target, name): ask(address, q="a", source=source, target=target, model=name, scores=True)
            for source, target in (("en", "fr"), ("fr", "en"), ("auto", "fr"))
            for name in (None, "second", "back")
        }
        assert {key: answer[1].get("model") for key, answer in chosen.items()} == {
            ("en", "fr", None): "first",
            ("en", "fr", "second"): "second",
            ("en", "fr", "back"): None,
            ("fr", "en", None): "back",
            ("fr", "en", "second"): None,
            ("fr", "en", "back"): "back",
            ("auto", "fr", None): "first",
            ("auto", "fr", "second"): "second",
            ("auto", "fr", "back"): None,
        }
        assert ask(address, q="a", source="auto", target="en")[0] == 400, "French or German?"
        assert [each["name"] for each in json.loads(get(address, "/models")[1])] == [each.name for each in models]
        languages = {each["code"]: each["targets"] for each in json.loads(get(address, "/languages")[1])}
        assert languages == {"de": ["en"], "en": ["fr"], "fr": ["en"]}


# What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"q": None}, 400, "Invalid request: missing q parameter"),
        ({"q": ""}, 400, "Invalid request: missing q parameter"),
        ({"q": []}, 400, "Invalid request: missing q parameter"),
        ({"q": 7}, 400, "Invalid request: q must be a text or a list of texts"),
        ({"q": {"a": "b"}}, 400, "Invalid request: q must be a text or a list of texts"),
        ({"q": ["a", 7]}, 400, "Invalid request: q must be a text or a list of texts"),
        ({"q": ["a", None]}, 400, "Invalid request: q must be a text or a list of texts"),
        ({"q": "a\ud800"}, 400, "Invalid request: q has a lone surrogate"),
        ({"q": "a\0"}, 400, "Invalid request: q has a NUL character"),
        ({"source": None}, 400, "Invalid request: missing source parameter"),
        ({"target": ""}, 400, "Invalid request: missing target parameter"),
        ({"source": "zz"}, 400, "zz is not supported"),
        ({"target": "\ud800"}, 400, "Invalid request: target has a lone surrogate"),
        ({"target": "\0\x1b" * 9}, 400, "\0\x1b" * 9 + " is not supported"),
        ({"source": "fr"}, 400, "French (fr) is not available as a target language from French (fr)"),
        ({"target": "en"}, 400, "English (en) is not available as a target language from English (en)"),
        ({"format": "html"}, 400, "html format is not supported"),
        ({"alternatives": "abc"}, 400, "Invalid request: alternatives parameter is not a number"),
        (
            {"alternatives": -1},
            400,
            f"Invalid request: alternatives must be a whole number from 0 to {MOST_ALTERNATIVES}",
        ),
        (
            {"alternatives": MOST_ALTERNATIVES + 1},
            400,
            f"Invalid request: alternatives must be a whole number from 0 to {MOST_ALTERNATIVES}",
        ),
        ({"model": "none"}, 400, "none is not a model of this server"),
        ({"alignments": True}, 400, "free does not attend: it has no alignments"),
        ({"alignments": "perhaps"}, 400, "Invalid request: alignments must be true or false"),
        ({"q": "x" * 31}, 413, "Invalid request: a line of more than 30 characters"),
        ({"q": "x\n" * 5}, 413, "Invalid request: more than 4 lines"),
        ({"q": ["x"] * 5}, 413, "Invalid request: more than 4 lines"),
        ({"q": "x" * 500}, 413, "Invalid request: more than 500 bytes"),
    ],
)
def test_a_mistake_is_told(changes: dict[str, Any], status: int, message: str, address: str) -> None:
    assert ask(address, **{"q": "a", **changes}) == (status, {"error": message})


@pytest.mark.parametrize(
    ("body", "kind", "status", "message"),
    [
        (b"{", JSON, 400, "Invalid JSON format"),
        (b"[" * 400, JSON, 400, "Invalid JSON format"),
        (b'["q"]', JSON, 400, "Invalid JSON format"),
        (b'{"q": "\xff"}', JSON, 400, "Invalid JSON format"),
        (b"q=%FF&source=en&target=fr", FORM, 400, "Invalid request: the form is not UTF-8"),
        (b"q=\xff&source=en&target=fr", FORM, 400, "Invalid request: the form is not UTF-8"),
        (
            b"q=a&q=b&source=en&source=fr&target=fr",
            FORM,
            400,
            "Invalid request: source must be a text",
        ),
        (b"", JSON, 400, "Invalid request: missing q parameter"),
        (b"a", "text/plain", 415, "text/plain is not supported: send application/json or " + FORM),
    ],
)
def test_a_body_that_is_none_is_told(body: bytes, kind: str, status: int, message: str, address: str) -> None:
    assert post(address, "/translate", body, kind) == (status, {"error": message})


def test_what_is_not_there_is_told(address: str) -> None:
    assert get(address, "/nothing") == (404, '{"error": "Not Found"}')
    assert get(address, "/translate") == (405, '{"error": "Method Not Allowed"}')
    assert get(address, "/../../etc/passwd")[0] == 404
    assert get(address, "/docs")[0] == 404


def test_a_line_of_too_many_pieces() -> None:
    with serving([free_model()], Limits(line_characters=10)) as address:
        assert ask(address, q="a b c d e")[0] == 200
        model = free_model()
        model.translator.tokenizer.encode_source = lambda texts: [[4] * 11 + [3] for _ in texts]
    with serving([model], Limits(line_characters=10)) as address:
        message = "Invalid request: line 1 has 11 pieces; at most 10 are translated"
        assert ask(address, q="ab") == (413, {"error": message})


def test_errors_of_the_translator_are_answers() -> None:
    model = free_model()
    with serving([model]) as address:
        assert ask(address, q="broken") == (400, {"error": "broken line"})
        assert ask(address, q="no memory") == (500, {"error": "out of memory"})
        model.translator.n_best = lambda *a, **b: 1 / 0
        assert ask(address, q="a")[0] == 500
        assert get(address, "/health") == (200, '{"status": "ok"}')


def test_a_server_that_is_busy_says_so() -> None:
    model = held_model()
    with serving([model], SMALL) as address, ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, address, q="a")
        assert model.translator.entered.acquire(timeout=WAIT)
        with ThreadPoolExecutor(1) as another:
            waiting = another.submit(ask, address, q=["a", "b", "c"])
            until(lambda: "nmt_waiting_lines 3\n" in get(address, "/metrics")[1])
            status, found = ask(address, q=["d", "e"])
            assert (status, "too many lines wait" in found["error"]) == (503, True)
            model.translator.free.set()
            assert waiting.result(WAIT) == (200, {"translatedText": ["A", "B", "C"]})
        assert running.result(WAIT) == (200, {"translatedText": "A"})


# Bad company -----------------------------------------------------------------------------------------------------


def until(holds: Callable[[], bool]) -> None:
    """Waits for it."""
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def head(*lines: str) -> bytes:
    return "\r\n".join(("POST /translate HTTP/1.1", "host: x", f"content-type: {JSON}", *lines, "", "")).encode()


def test_a_huge_body_is_refused_with_and_without_its_size(address: str) -> None:
    for size in ("content-length: 8000000", "transfer-encoding: chunked"):
        with connected(address) as connection:
            connection.sendall(head(size))
            block = b"x" * 100_000
            for _ in range(80):
                connection.sendall(block if "length" in size else b"186a0\r\n" + block + b"\r\n")
            connection.sendall(b"" if "length" in size else b"0\r\n\r\n")
            answer = everything(connection)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert answer.endswith(b'{"error": "Invalid request: more than 500 bytes"}')


def test_a_client_that_asks_first_need_not_send_a_huge_body(address: str) -> None:
    with connected(address) as connection:
        connection.sendall(head("content-length: 8000000", "expect: 100-continue"))
        assert everything(connection).startswith(b"HTTP/1.1 413 ")


def test_a_slow_body_is_given_up_and_keeps_nobody_waiting(address: str) -> None:
    with connected(address) as connection:
        connection.sendall(head("content-length: 400") + b"{")
        assert ask(address, q="a") == (200, {"translatedText": "A"})
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'{"error": "Invalid request: it had not come after 0.5 seconds"}' in answer


def test_slow_headers_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.PromptProtocol, "SECONDS", 0.5)
    with serving([free_model()]) as address, contextlib.ExitStack() as stack:
        silent, begun, second = (stack.enter_context(connected(address)) for _ in range(3))
        begun.sendall(b"POST /transl")
        second.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = second.recv(1)
        time.sleep(0.3)  # until the answer is complete
        second.sendall(b"GET /he")
        for connection in (silent, begun):
            assert everything(connection) == b""
        answer += everything(second)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1") == 1


def test_a_request_that_takes_longer_than_headers_may_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.PromptProtocol, "SECONDS", 0.2)
    model = held_model()
    with serving([model]) as address, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, address, q="a")
        time.sleep(0.6)
        model.translator.free.set()
        assert asked.result(WAIT) == (200, {"translatedText": "A"})


def test_what_is_no_http_is_refused(address: str) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n"):
        with connected(address) as connection:
            connection.sendall(garbage + b"\r\n\r\n")
            assert everything(connection).startswith(b"HTTP/1.1 400 ")
    assert ask(address, q="a")[0] == 200


def test_the_question_of_a_client_that_has_left_is_dropped() -> None:
    model = held_model()
    with serving([model]) as address, ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, address, q="first")
        assert model.translator.entered.acquire(timeout=WAIT)
        body = json.dumps({"q": "left", "source": "en", "target": "fr"}).encode()
        with connected(address) as connection:
            connection.sendall(head(f"content-length: {len(body)}") + body)
            until(lambda: "nmt_waiting_lines 1\n" in get(address, "/metrics")[1])
        until(lambda: 'path="/translate",status="499"' in get(address, "/metrics")[1])
        model.translator.free.set()
        assert running.result(WAIT)[0] == 200
        assert ask(address, q="last")[0] == 200
        assert model.translator.batches == [["first"], ["last"]]


def test_on_leaving_running_requests_are_answered() -> None:
    model = held_model()
    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
        address = stack.enter_context(serving([model]))
        asked = pool.submit(ask, address, q="a")
        assert model.translator.entered.acquire(timeout=WAIT)
        threading.Timer(0.5, model.translator.free.set).start()
        stack.close()
        assert asked.result(WAIT) == (200, {"translatedText": "A"})
        with pytest.raises(ConnectionRefusedError):
            connected(address)


# What is told ----------------------------------------------------------------------------------------------------


def test_metrics_are_what_prometheus_reads() -> None:
    with serving([free_model('a"b\\c')]) as address:
        assert ask(address, q=["a", "b"])[0] == 200
        assert ask(address, q="")[0] == 400
        assert get(address, "/anything")[0] == 404
        status, text = get(address, "/metrics")
    assert status == 200
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            assert re.fullmatch(r'[a-z_]+(\{[a-z]+="([^"\\]|\\.)*"(,[a-z]+="([^"\\]|\\.)*")*\})?', name), line
            samples[name] = float(value)
    assert samples['nmt_requests_total{path="/translate",status="200"}'] == 1
    assert samples['nmt_requests_total{path="/translate",status="400"}'] == 1
    assert samples['nmt_requests_total{path="other",status="404"}'] == 1
    assert samples['nmt_lines_total{model="a\\"b\\\\c"}'] == 2
    assert samples["nmt_request_seconds_count"] == samples['nmt_request_seconds_bucket{le="+Inf"}'] == 1
    assert samples["nmt_batch_lines_sum"] == 2
    assert samples['nmt_batch_lines_bucket{le="1"}'] == 0
    assert samples['nmt_batch_lines_bucket{le="2"}'] == 1
    assert samples["nmt_waiting_lines"] == 0
    assert samples["process_resident_memory_bytes"] > 1e6


def test_the_page_asks_for_nothing_from_elsewhere(address: str) -> None:
    for path in server.PAGE:
        status, text = get(address, path)
        assert status == 200
        assert not re.search(r"https?:|//[a-z]", re.sub(r"// .*", "", text)), path
    with connected(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert b"content-security-policy: default-src 'none'; script-src 'self'" in everything(connection)


def test_settings_and_schema(address: str) -> None:
    settings = json.loads(get(address, "/frontend/settings")[1])
    assert settings["charLimit"] == 30
    assert settings["language"]["target"] == {"code": "fr", "name": "French"}
    paths = json.loads(get(address, "/openapi.json")[1])["paths"]
    properties = paths["/translate"]["post"]["requestBody"]["content"][JSON]["schema"]["properties"]
    assert {"q", "source", "target", "format", "alternatives", "model", "scores", "alignments"} == set(properties)


@pytest.mark.parametrize(("allowed", "answered"), [([], b""), (["http://a"], b"http://a"), (["*"], b"*")])
def test_pages_from_elsewhere_are_let_in_on_request_only(allowed: list[str], answered: bytes) -> None:
    with serving([free_model()], origins=allowed) as address:
        for request in (
            b"OPTIONS /translate HTTP/1.1\r\naccess-control-request-method: POST\r\n",
            b"GET /languages HTTP/1.1\r\n",
        ):
            with connected(address) as connection:
                connection.sendall(request + b"host: x\r\norigin: http://a\r\nconnection: close\r\n\r\n")
                found = re.search(rb"\r\naccess-control-allow-origin: (.+)\r\n", everything(connection))
            assert (found[1] if found else b"") == answered


def test_an_export_is_called_what_its_run_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = free_model().translator
    monkeypatch.setattr(served, "load_translator", lambda path: translator)
    made = {"source_language": "fr", "target_language": "de", "model": {"name": "transformer"}}
    (tmp_path / "export.json").write_text(json.dumps({"provenance": made}), "utf-8")
    assert open_served([tmp_path]) == [Served(tmp_path.name, translator, "fr", "de", "transformer", None)]
    (tmp_path / "export.json").write_text("{}", "utf-8")
    with pytest.raises(WorkError, match="does not say which model and languages the export has"):
        open_served([tmp_path])


def test_names_tell_runs_apart() -> None:
    paths = [Path("/a/runs/x"), Path("/b/runs/x"), Path("/a/runs/y/checkpoints/best")]
    assert served_names(paths[:1]) == ["x"]
    assert served_names(paths[::2]) == ["x", "y/best"]
    assert served_names(paths) == ["a/runs/x", "b/runs/x", "a/runs/y/best"]
    with pytest.raises(RequestError, match="/a/runs/x twice"):
        served_names([paths[0], paths[1], paths[0]])


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WorkError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            server.listen("127.0.0.1", port)
    with pytest.raises(WorkError, match="cannot listen on no such host"):
        server.listen("no such host", 0)
