"""The data of a call: a card or a price that nobody could hold anyone to is refused when it is made."""

import pytest

from shikisha.core.budget import Price
from shikisha.core.call import Card
from shikisha.core.errors import ConfigError


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0.0},
        {"rate": float("nan")},
        {"concurrency": 0},
        {"attempts": 0},
        {"timeout": -1.0},
        {"max_output_tokens": -1},
        {"context_tokens": 0},
    ],
)
def test_a_card_with_a_number_out_of_range_names_it(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"worker 'w': .*{name}"):
        Card("w", **wrong)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("wrong", [{"input": -1.0}, {"output": float("inf")}, {"cached": float("nan")}, {"call": -0.1}])
def test_a_price_that_could_lower_a_bill_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="price"):
        Price(**wrong)
