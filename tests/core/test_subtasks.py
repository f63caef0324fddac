"""The core of a subtask: what conductors add is left out, other words stay, and long texts cost little."""

from shikisha.core.prompts import CHECK_OPENING, WORDINGS, subtask_core, write_known


def test_what_a_conductor_adds_is_no_part_of_the_work() -> None:
    work = "Add 3 to it. For example: what Ada owes."
    known = " ".join([write_known("Who is it?", "Ada"), write_known("How much?", "3.5")])
    for opening in ("", f"{CHECK_OPENING} "):
        for stated in ("", f"{known} "):
            for told in ([], ["unit"], sorted(WORDINGS)):
                text = " ".join([f"{opening}{stated}{work}", *(WORDINGS[name] for name in told)])
                assert subtask_core(text) == work


def test_other_words_stay() -> None:
    for text in ("Check it.", 'He said: Known: "x" gave 3.', "Reply with the result only", CHECK_OPENING, ""):
        assert subtask_core(text) == text


def test_a_long_text_is_its_own_core() -> None:
    for text in (" ".join(WORDINGS.values()) * 20_000, write_known("a", "1") * 100_000, 'Known: "' * 100_000):
        assert subtask_core(text) == text
        assert len(subtask_core(text[:20_000])) <= 20_000
