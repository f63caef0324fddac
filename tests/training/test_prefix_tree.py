"""What texts begin with alike is one node each; a node sees its own text's tokens up to itself, and nothing else."""

import random
from collections.abc import Sequence

import pytest
import torch

from shikisha.training.qwen2 import BLOCK_SIZE, PrefixTree, build_prefix_tree

SMALL = [[3, 4, 5], [3, 4], [3, 6, 5, 5], [3, 4, 5], [7]]


def texts(count: int, seed: int = 0) -> list[list[int]]:
    """Texts of up to 40 tokens that often begin alike."""
    dice = random.Random(seed)
    begun = [[dice.randrange(3) for _ in range(dice.randrange(20))] for _ in range(4)]
    return [[*dice.choice(begun), *(dice.randrange(9) for _ in range(1 + dice.randrange(20)))] for _ in range(count)]


def seen(tree: PrefixTree, node: int) -> set[int]:
    block, row = divmod(node, BLOCK_SIZE)
    return set(tree.keys[block][tree.mask[block, 0, row] == 0].tolist())


@pytest.mark.parametrize("given", [SMALL, texts(2), texts(100)])
def test_every_text_is_spelt_by_its_nodes(given: Sequence[Sequence[int]]) -> None:
    tree, nodes = build_prefix_tree(given)
    assert [tree.tokens[each].tolist() for each in nodes] == [list(text) for text in given]
    assert all(tree.positions[each].tolist() == list(range(len(each))) for each in nodes)
    assert len(tree.tokens) % BLOCK_SIZE == 0


@pytest.mark.parametrize("given", [SMALL, texts(2), texts(100)])
def test_a_node_sees_the_way_to_it(given: Sequence[Sequence[int]]) -> None:
    tree, nodes = build_prefix_tree(given)
    for each in nodes:
        for place, node in enumerate(each):
            assert seen(tree, node) == set(each[: place + 1])


@pytest.mark.parametrize("given", [SMALL, texts(2), texts(100)])
def test_equal_beginnings_are_one(given: Sequence[Sequence[int]]) -> None:
    tree, nodes = build_prefix_tree(given)
    begun = {tuple(text[: place + 1]) for text in given for place in range(len(text))}
    assert len({node for each in nodes for node in each}) == len(begun)
    assert len(tree.tokens) < len(begun) + BLOCK_SIZE


def test_what_fills_the_last_block_sees_itself_alone() -> None:
    tree, nodes = build_prefix_tree(SMALL)
    used = {node for each in nodes for node in each}
    assert all(seen(tree, node) == {node} for node in set(range(len(tree.tokens))) - used)


def test_the_order_of_texts_changes_no_node() -> None:
    given = texts(30)
    tree, nodes = build_prefix_tree(given)
    other, turned = build_prefix_tree(given[::-1])
    assert torch.equal(tree.tokens, other.tokens)
    assert nodes == turned[::-1]


def test_texts_without_tokens_make_a_tree_too() -> None:
    tree, nodes = build_prefix_tree([[], []])
    assert nodes == [[], []]
    assert len(tree.tokens) == BLOCK_SIZE
