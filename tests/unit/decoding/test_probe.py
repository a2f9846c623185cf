"""The probe set of scripts/probe_copying.py, on a model that has learnt nothing: what --copy protects is there."""

from __future__ import annotations

from pathlib import Path

import pytest

import probe_copying
from nmt.decoding.glossary import copied
from untrained import untrained_run


def test_the_probes_are_what_they_say() -> None:
    every = probe_copying.probes()
    assert every == probe_copying.probes()
    assert len(every) == 200
    for kind, item, sentence in every:
        assert item in sentence
        assert (item in copied(sentence)) == (kind != "capitals"), sentence


def test_all_that_is_protected_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = untrained_run(tmp_path / "run", byte_fallback=False)
    few = probe_copying.probes()[::10]
    monkeypatch.setattr(probe_copying, "probes", lambda: few)
    monkeypatch.setattr(probe_copying, "EACH", len(few) // 5)
    probe_copying.main([str(run), "--beam-size", "1", "--json", str(tmp_path / "out.json")])
    printed = capsys.readouterr().out.splitlines()
    assert (tmp_path / "out.json").read_text() == f"{printed[-1]}\n"
    shares = {line.split()[0]: line.split()[1:] for line in printed[1:6]}
    assert {kind: share[1] for kind, share in shares.items() if kind != "capitals"} == dict.fromkeys(
        ("number", "date", "address", "emoji"), "100.0%"
    )
    assert any(share[0] != "100.0%" for share in shares.values())
