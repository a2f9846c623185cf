"""Text on its way to TensorBoard."""

from __future__ import annotations

import html

import pytest

from nmt.training.board import escape_markdown


def test_markdown_shows_escaped_text_as_it_was() -> None:
    markdown = pytest.importorskip("markdown")
    text = "a *b* _c_ `d` [e](f) <b>g</b> ~~h~~ i|j &amp; k\\l ![m](n) # o $p$"
    shown = markdown.markdown("x " + escape_markdown(text), extensions=["markdown.extensions.tables"])
    assert "<b>" not in shown
    assert html.unescape(shown) == f"<p>x {text}</p>"
