"""The page that `nmt serve` has, in a browser, as people use it: by keyboard, by mouse, on a phone, in the dark."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the optional package FastAPI is not installed")

from nmt.decoding.translator import TextTranslator
from nmt.serving.served import open_served
from serving import serving
from untrained import untrained_run

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
WAIT = 60_000  # milliseconds, on a busy machine
SENTENCE = "The old man sees the red house."


@pytest.fixture(scope="module")
def served(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, TextTranslator]]:
    """A server of a model that attends, `trained`, and of one that does not, `fixed`; the first one's translator."""
    fixed = untrained_run(tmp_path_factory.mktemp("runs") / "fixed", "lstm-reversed")
    models = open_served([trained_run, fixed])
    with serving(models) as address:
        yield address, models[0].translator


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    with playwright.sync_playwright() as engine:
        found = engine.chromium.launch(executable_path=CHROMIUM, args=[*QUIET, "--disable-sync"])
        yield found
        found.close()


class Page:
    """A page that has been opened, with what it has asked for and complained of."""

    def __init__(self, browser: Any, address: str, **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT)
        self.requests: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.complaints: list[str] = []
        self.page.on("request", self._note)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(address)
        self.text = self.page.get_by_label("English", exact=True)
        self.status = self.page.get_by_role("status")

    def _note(self, request: Any) -> None:
        self.requests.append(request.url)
        if request.method == "POST":
            self.bodies.append(request.post_data_json)

    def card(self, name: str) -> Any:
        """What one run made of the text."""
        return self.page.get_by_role("article", name=name)

    def words(self, name: str, kind: str) -> Any:
        """The French or English words of a card."""
        return self.card(name).get_by_role("group", name=f"{kind} words").get_by_role("button")

    def shows(self, name: str, text: str) -> None:
        """Waits for a translation whose words are those."""
        playwright.expect(self.words(name, "French")).to_have_text(text.split(), timeout=WAIT)


@pytest.fixture
def opened(served: tuple[str, TextTranslator], browser: Any) -> Iterator[Page]:
    page = Page(browser, served[0])
    yield page
    page.context.close()


def weight(word: Any) -> float:
    return float(word.evaluate("word => getComputedStyle(word).getPropertyValue('--weight')"))


def test_french_appears_as_english_is_typed(opened: Page, served: tuple[str, TextTranslator]) -> None:
    address, translator = served
    [best] = translator.translate([SENTENCE])
    opened.text.press_sequentially(SENTENCE, delay=5)
    opened.shows("trained", best.text)
    playwright.expect(opened.status).to_have_text("")
    assert [body["q"] for body in opened.bodies if body["model"] == "trained"][-1] == SENTENCE
    assert f"trained: {best.text}" in opened.page.locator("[aria-live]#announcement").text_content()
    opened.text.fill("")
    playwright.expect(opened.page.locator(".word")).to_have_count(0)
    assert {url.rsplit("/", 1)[0] for url in opened.requests} <= {address, "data:,"}, "nothing from elsewhere"
    assert opened.complaints == []


def test_it_asks_after_a_pause_and_not_with_each_key(opened: Page) -> None:
    clock = opened.page.clock
    clock.install()
    clock.pause_at("2100-01-01")
    for part in ("The old man", " sees the red house."):
        opened.text.press_sequentially(part)
        clock.run_for(200)
    assert opened.bodies == []
    clock.run_for(50)
    playwright.expect(opened.card("fixed")).to_contain_text("This model does not attend")
    assert [(body["model"], body["q"]) for body in opened.bodies] == [("trained", SENTENCE), ("fixed", SENTENCE)]


def test_an_answer_that_comes_too_late_is_dropped(opened: Page, served: tuple[str, TextTranslator]) -> None:
    _, translator = served
    opened.page.get_by_role("checkbox", name="fixed").uncheck()
    texts = ["A girl likes the sea.", "A bird hears the river."]
    first, second = (found.text for found in translator.translate(texts))
    assert first != second
    held = []

    def hold(route: Any) -> None:
        if route.request.post_data_json["q"] == texts[0]:
            held.append((route, route.fetch()))  # the answer is there, and kept back
        else:
            route.continue_()

    opened.page.route("**/translate", hold)
    opened.text.fill(texts[0])
    end = time.monotonic() + WAIT / 1_000
    while not held:
        assert time.monotonic() < end
        opened.page.wait_for_timeout(20)
    opened.text.fill(texts[1])
    opened.shows("trained", second)
    [(route, answer)] = held
    route.fulfill(response=answer)
    opened.page.wait_for_timeout(300)
    opened.shows("trained", second)
    assert opened.complaints == []


def test_a_word_shows_where_the_model_looked(opened: Page, served: tuple[str, TextTranslator]) -> None:
    _, translator = served
    [best] = translator.translate([SENTENCE], alignments=True)
    assert best.alignment is not None
    alignment = best.alignment.words()
    opened.text.fill(SENTENCE)
    opened.shows("trained", best.text)
    sources, targets = opened.words("trained", "English"), opened.words("trained", "French")
    playwright.expect(sources).to_have_text(alignment.source_tokens)
    for t in (1, 3):
        targets.nth(t).hover()
        shown = [weight(sources.nth(s)) for s in range(len(alignment.source_tokens))]
        assert shown == pytest.approx(alignment.weights_TS[t].tolist(), abs=1e-3)
    sources.nth(2).hover()
    shown = [weight(targets.nth(t)) for t in range(len(alignment.target_tokens))]
    assert shown == pytest.approx(alignment.weights_TS[:, 2].tolist(), abs=1e-3)
    strongest = alignment.target_tokens[int(alignment.weights_TS[:, 2].argmax())]
    playwright.expect(opened.card("trained").locator(".note")).to_contain_text(f"man → {strongest} ")
    opened.text.hover()
    assert weight(targets.nth(0)) == 0


def test_it_works_by_keyboard(opened: Page, served: tuple[str, TextTranslator]) -> None:
    _, translator = served
    [found] = translator.n_best([SENTENCE], translator.search.__class__(beam_size=5, n_best=5), alignments=True)
    playwright.expect(opened.text).to_be_focused()
    opened.page.keyboard.type(SENTENCE)
    opened.shows("trained", found[0].text)
    press = opened.page.keyboard.press
    for _ in range(3):  # over the two runs' boxes to the first word
        press("Tab")
    targets, sources = opened.words("trained", "French"), opened.words("trained", "English")
    playwright.expect(targets.nth(0)).to_be_focused()
    press("ArrowRight")
    playwright.expect(targets.nth(1)).to_be_focused()
    assert found[0].alignment is not None
    assert weight(sources.nth(1)) == pytest.approx(found[0].alignment.words().weights_TS[1, 1], abs=1e-3)
    press("End")
    playwright.expect(targets.last).to_be_focused()
    press("Tab")
    playwright.expect(sources.nth(0)).to_be_focused()
    press("Tab")  # the list's heading
    press("Tab")
    press("Tab")
    press("Enter")
    opened.shows("trained", found[1].text)
    choices = opened.card("trained").get_by_role("listitem").get_by_role("button")
    playwright.expect(choices.nth(1)).to_have_attribute("aria-pressed", "true")
    playwright.expect(choices.nth(0)).to_have_attribute("aria-pressed", "false")
    assert [choices.nth(n).locator(".score").text_content() for n in range(5)] == [
        f"{each.score:.3f}".replace("-", "−") for each in found
    ]


def test_runs_side_by_side_and_one_that_does_not_attend(opened: Page) -> None:
    opened.text.fill(SENTENCE)
    playwright.expect(opened.card("fixed")).to_contain_text("This model does not attend")
    playwright.expect(opened.words("trained", "French").first).to_be_visible()
    left, right = (opened.card(name).bounding_box() for name in ("trained", "fixed"))
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]
    opened.page.get_by_role("checkbox", name="fixed").uncheck()
    playwright.expect(opened.card("fixed")).to_have_count(0)
    playwright.expect(opened.words("trained", "French").first).to_be_visible()


def test_a_mistake_is_shown(opened: Page) -> None:
    opened.text.fill("x" * 1_001)
    playwright.expect(opened.card("trained")).to_contain_text("a line of more than 1000 characters")
    opened.text.fill("A cat.\n\nA dog.")
    playwright.expect(opened.card("trained").get_by_role("group", name="French words")).to_have_count(2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(scheme: str, served: tuple[str, TextTranslator], browser: Any) -> None:
    size = {"width": 360, "height": 740}
    opened = Page(browser, served[0], viewport=size, has_touch=True, is_mobile=True, color_scheme=scheme)
    try:
        opened.text.fill(SENTENCE + " " + "x" * 60)
        targets, sources = opened.words("trained", "French"), opened.words("trained", "English")
        targets.nth(2).tap()
        playwright.expect(targets.nth(2)).to_be_focused()
        assert max(weight(sources.nth(s)) for s in range(sources.count())) > 0
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360, "nothing sticks out"
        low, high = luminance(opened, "backgroundColor"), luminance(opened, "color")
        assert (low < high) == (scheme == "dark")
        assert (max(low, high) + 0.05) / (min(low, high) + 0.05) >= 7, "contrast, WCAG 2 AAA"
    finally:
        opened.context.close()


def luminance(opened: Page, part: str) -> float:
    """Relative luminance, as WCAG 2 defines it, of a colour of the page."""
    color = opened.page.evaluate(f"getComputedStyle(document.body).{part}")
    channels = [int(number) / 255 for number in color.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
