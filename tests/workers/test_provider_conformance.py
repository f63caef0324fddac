"""Each provider in twelve situations, through the worker, the agent loop and the three doors."""

import asyncio
from pathlib import Path

import pytest
from conformance import DOORS, PROVIDERS, ROUTES, SITUATIONS, ProviderDoors, play

from shikisha.config.providers import FIRST_RUN_PROVIDERS
from shikisha.core.errors import ConfigError
from shikisha.workers.provider_profile import parse_profile, provider_profiles, vocabulary


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_provider_is_read_as_it_documents_itself(name: str) -> None:
    played = [await play(name, each, route) for each in SITUATIONS if each != "cancel" for route in ROUTES]
    played += await asyncio.gather(*(play(name, "cancel", route) for route in ROUTES))  # which take their time
    assert sum(played) >= 16  # of 24: some providers have no quota, or filter nothing


@pytest.mark.parametrize("part", range(2))
async def test_a_providers_clients_hear_the_same_at_every_door(part: int, tmp_path: Path) -> None:
    """Each pair of provider, situation and door is played: a door knows no provider, only what a worker returned."""
    wrong, played = {}, 0
    async with ProviderDoors().opened(tmp_path) as doors:
        for row, name in list(enumerate(PROVIDERS))[part::2]:
            for column, situation in enumerate(SITUATIONS):
                door = DOORS[(row + column) % len(DOORS)]
                try:
                    played += await doors.play(name, situation, door)
                except (AssertionError, KeyError, ValueError) as error:
                    wrong[name, situation, door] = str(error)
    assert not wrong
    assert played >= 100


def test_every_provider_of_the_docs_has_a_profile_and_a_row() -> None:
    named = {name for each in provider_profiles().values() for name in each.names}
    assert set(FIRST_RUN_PROVIDERS) <= named
    assert set(FIRST_RUN_PROVIDERS) | {"zai", "nvidia_nim", "ollama", "hosted_vllm", "lm_studio"} <= set(PROVIDERS)
    assert set(PROVIDERS) <= named
    assert len(vocabulary().finish) > 40


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("colour = 1", "unknown key"),
        ("[calls]\nmax_nam = 3", "unknown key"),
        ('[errors.codes]\ntoo_big = ["x"]', "too_big"),
        ("title = ", "not TOML"),
    ],
)
def test_a_profile_with_an_unknown_key_names_it(text: str, what: str) -> None:
    whole = text if text.startswith("title") else f'title = "x"\nnames = []\nsources = []\n{text}'
    with pytest.raises(ConfigError, match=r"profiles/x\.toml") as caught:
        parse_profile(whole, "profiles/x.toml")
    assert what in str(caught.value)
