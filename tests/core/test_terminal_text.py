"""Nothing that a model writes moves a terminal's cursor."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shikisha.core.text import clean_text, one_line, to_safe_json

ATTACKS = [
    "\x1b[2J\x1b[H",  # clears the screen
    "\x1b]0;title\x07",  # sets the window's title
    "\x1b]52;c;cm0gLXJm\x07",  # writes to the clipboard
    "\x9b31m",  # colour, as one C1 character
    "\x1bP+q\x1b\\",  # asks the terminal to answer
    "safe\rfake",  # overwrites its own line
    "a\x08\x08b",
    "\u202etxt.exe",  # reverses the reading order
    "\u2066hidden\u2069",
    "\U000e0041",  # invisible tag
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_becomes_visible_text(attack: str) -> None:
    shown = clean_text(attack)
    assert shown != attack
    assert all(unicodedata.category(letter) not in ("Cc", "Cf") for letter in shown)


@given(st.text())
def test_nothing_but_newline_and_tab_controls_anything(text: str) -> None:
    controls = [c for c in clean_text(text) if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert set(controls) <= {"\n", "\t"}


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_ordinary_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert clean_text(text) == text


def test_windows_line_ends_are_line_ends() -> None:
    assert clean_text("a\r\nb") == "a\nb"


@given(st.text(), st.integers(1, 50))
def test_one_line_is_one_short_line(text: str, longest: int) -> None:
    line = one_line(text, longest)
    assert "\n" not in line
    assert len(line) <= longest


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_holds_no_control_character_and_reads_back(text: str) -> None:
    written = to_safe_json({"text": text})
    assert clean_text(written) == written
    assert json.loads(written) == {"text": text}
