"""The vault: keys come from the environment by name, and every text that leaves is scrubbed of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shikisha.core.errors import ConfigError
from shikisha.core.secrets import MASK, SecretStore

KEY = "sk-0123456789abcdef"


def secret_store(**environment: str) -> SecretStore:
    keys = SecretStore(environment)
    for name in environment:
        keys.read(name)
    return keys


def test_a_key_is_read_by_the_name_of_its_variable() -> None:
    assert SecretStore({"API_KEY": f"  {KEY}\n"}).read("API_KEY") == KEY


@pytest.mark.parametrize("environment", [{}, {"API_KEY": ""}, {"API_KEY": "  "}])
def test_a_missing_key_names_the_variable(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="environment variable API_KEY is not set"):
        SecretStore(environment).read("API_KEY")


def test_invariant_8_what_is_too_short_for_a_key_is_refused_unshown() -> None:
    with pytest.raises(ConfigError) as caught:
        SecretStore({"API_KEY": "hunter2"}).read("API_KEY")
    assert "hunter2" not in str(caught.value)


@given(st.text(), st.text())
def test_invariant_8_no_known_key_leaves_in_any_text(before: str, after: str) -> None:
    scrubbed = secret_store(API_KEY=KEY).scrub(before + KEY + after + KEY)
    assert KEY not in scrubbed
    assert scrubbed == before + MASK + after + MASK


def test_invariant_8_every_key_is_masked() -> None:
    keys = secret_store(ONE=KEY, OTHER="another-key-42")
    assert keys.scrub(f"{KEY} and another-key-42") == f"{MASK} and {MASK}"


@pytest.mark.parametrize("names", [("LONG", "SHORT"), ("SHORT", "LONG")])
def test_invariant_8_a_key_within_a_key_leaves_nothing_of_either(names: tuple[str, str]) -> None:
    keys = {"LONG": "sk-prefix-and-the-rest", "SHORT": "sk-prefix"}
    assert "rest" not in secret_store(**{name: keys[name] for name in names}).scrub("it is sk-prefix-and-the-rest")


def test_invariant_8_a_vault_shows_names_and_no_keys() -> None:
    keys = secret_store(API_KEY=KEY)
    assert KEY not in f"{keys!r} {keys}"
    assert "API_KEY" in repr(keys)


def test_a_text_without_keys_is_left_alone() -> None:
    text = "nothing to hide"
    assert secret_store(API_KEY=KEY).scrub(text) is text


@given(st.lists(st.sampled_from(["sk-", KEY[:9], KEY[9:], KEY, "s", "k", "-", "0", "x", "\n"]), max_size=12))
def test_invariant_8_a_growing_text_is_heard_as_the_whole_would_be_scrubbed(pieces: list[str]) -> None:
    keys, heard = secret_store(API_KEY=KEY), list[str]()
    listener = keys.listener(heard.append)
    for piece in pieces:
        listener(piece)
    listener.end()
    assert "".join(heard) == keys.scrub("".join(pieces))
    assert "" not in heard


LONG = "sk-planted-Q7x2mNv94kLpZ8rT1wYb5cHd3fGj6sAe"


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (f"Incorrect API key provided: {LONG[:20]}.", f"Incorrect API key provided: {MASK}."),
        (f"key {LONG[:8]} is wrong", f"key {MASK} is wrong"),
        (f"key ending in {LONG[-10:]}", f"key ending in {MASK}"),
        (f"key …{LONG[12:30]}… is wrong", f"key …{MASK}… is wrong"),
        (f"key {LONG[:10]}********{LONG[-4:]} is wrong", f"key {MASK} is wrong"),
        (f"key {LONG[:5]}****{LONG[-4:]}, or so", f"key {MASK}, or so"),
        (f"key '{LONG[:6]}...{LONG[-4:]}'", f"key '{MASK}'"),
        (f"key ****{LONG[-6:]}", f"key {MASK}"),
        (f"{LONG[:20]} and {LONG[20:]}", f"{MASK} and {MASK}"),
        ("wait ... for it, **bold** and 2***3", "wait ... for it, **bold** and 2***3"),
        (LONG[:7], LONG[:7]),
    ],
)
def test_invariant_8_a_piece_of_a_key_is_not_repeated_from_a_failure(said: str, left: str) -> None:
    assert secret_store(API_KEY=LONG).redact(said) == left


@given(st.text(alphabet=f"{LONG[:12]}*. '"), st.integers(0, len(LONG)), st.integers(0, len(LONG)), st.text())
def test_invariant_8_no_eight_characters_of_a_key_are_left_in_a_redacted_text(
    before: str, start: int, stop: int, after: str
) -> None:
    redacted = secret_store(API_KEY=LONG, OTHER=KEY).redact(f"{before}{LONG[start:stop]}{after}")
    assert not any(LONG[at : at + 8] in redacted for at in range(len(LONG) - 7))


def test_invariant_8_the_beginning_of_a_key_is_masked_in_an_answer_and_a_maker_s_prefix_is_not() -> None:
    keys = secret_store(API_KEY=LONG)
    assert keys.scrub(f"Your key {LONG[:20]} is wrong, {LONG[:30]} too.") == f"Your key {MASK} is wrong, {MASK} too."
    assert keys.scrub(f"Keys begin with {LONG[:11]}.") == f"Keys begin with {LONG[:11]}."


PARTS = ["sk-", LONG[:9], LONG[:17], LONG[:25], LONG[9:], LONG[17:], LONG, "s", "k", "-", "p", "x", "\n"]
SELF = "abcabcabcabcabcabcabcabcX-0123456789"


@given(st.lists(st.sampled_from(PARTS), max_size=12), st.lists(st.sampled_from(["abc", "a", "X", SELF]), max_size=20))
def test_invariant_8_beginnings_of_keys_are_masked_in_a_growing_text_as_in_the_whole(
    one: list[str], other: list[str]
) -> None:
    for key, pieces in ((LONG, one), (SELF, other)):
        keys, heard = secret_store(API_KEY=key), list[str]()
        listener = keys.listener(heard.append)
        for piece in pieces:
            listener(piece)
        listener.end()
        assert "".join(heard) == keys.scrub("".join(pieces))
