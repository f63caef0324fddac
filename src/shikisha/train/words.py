"""A word-level tokenizer made for one small vocabulary: words of a corpus, and pieces of plan text as one token each.

Numbers of two digits and more are one token, `#`; words that the corpus does not have are another: a small model
spends nothing on copying what workers see anyway. Pieces ("model_id = [", a whole phrase in quotes) are kept to the
letter, so what is sampled decodes to exact plan text. Invariants: no text can spell a special token (they are no
pieces); the same corpus gives the same tokenizer. Deliberately absent: merges, subwords, byte fallback.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from shikisha.plan import MAX_STEPS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, END, UNKNOWN, NUMBER = "[pad]", "[end]", "[unk]", "#"
_WORD = r"[a-z]+|\$[0-9?]|[0-9]|\n|#|[^\sa-z0-9]"


def word_tokenizer(corpus: Iterable[str], pieces: Sequence[str], least: int = 5) -> "Tokenizer":
    """Return the tokenizer of these pieces and of every word that the corpus has `least` times or more."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    longest_first = sorted(set(pieces), key=lambda piece: (-len(piece), piece))
    pattern = "|".join([*map(_escaped, longest_first), _WORD])
    normal = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex("[0-9]{2,}"), NUMBER)])
    split = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
    counted: Counter[str] = Counter()
    for text in corpus:
        counted.update(word for word, _ in split.pre_tokenize_str(normal.normalize_str(text)))
    words = sorted(word for word, times in counted.items() if times >= least and word not in longest_first)
    vocabulary = {word: place for place, word in enumerate([PAD, END, UNKNOWN, *longest_first, *words])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    made.normalizer, made.pre_tokenizer, made.decoder = normal, split, decoders.Fuse()
    return made


def plan_pieces(phrases: Iterable[str], most_steps: int = MAX_STEPS) -> tuple[str, ...]:
    """Return the pieces that plans as three lists are made of, if their subtasks are among these phrases."""
    earlier = range(most_steps - 1)
    access = [str(list(seen)) for count in range(most_steps - 1) for seen in combinations(earlier, count)]
    lists = ("model_id = [", "\nmodel_id = [", "]\nsubtasks = [", "]\naccess_list = [", "]", ", ", '["all"]')
    return (*lists, *access, *map(str, range(10)), *(f'"{phrase}"' for phrase in phrases))


def _escaped(piece: str) -> str:
    """Escape for the tokenizer's regular expressions, which know no escaped blanks and line breaks."""
    return re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", piece)
