"""Extract the Python program from an answer.

1. Fenced blocks labelled Python, or not labelled, count; others (cpp, bash, json) never do. Of the blocks that parse,
   the last one that defines the requested function wins; failing that, the last one that is more than names and
   constants. Labelled blocks come first. An unclosed fence reaches to the end: such an answer was cut off.
2. Without such a block the bare text counts if it is Python that does something. Otherwise its part from the first line
   that can only be code counts, without the paragraphs of prose after it.
3. If the task's prompt is code, text that does not define the function is joined to the prompt as the rest of its body;
   text that does define it receives the prompt's imports and helpers.

Invariant: text is parsed and never run, and the result stands in the answer or the prompt. A program with a syntax
error is returned as it is, for it is wrong and not absent; None means that nothing looks like code. Deliberately
absent: joining several blocks, and Python 2.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent, indent

from shikisha.evals.graders.answer_extraction import cut_at_end_token

# Characters; a longer text is not a program.
LONGEST_PROGRAM = 200_000
_PYTHON_LABELS = frozenset({"python", "python3", "py", "py3"})
_CODE_LINE = re.compile(
    r"(async\s+)?def\s+\w+\s*\(|class\s+\w+\s*[(:]|from\s+[\w.]+\s+import\s"
    r"|import\s+[\w.]+(\s+as\s+\w+)?(\s*,\s*[\w.]+(\s+as\s+\w+)?)*$|@\w[\w.]*(\(.*\))?$"
)
_INERT_NODES = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Tuple,
    ast.UnaryOp,
    ast.BinOp,
    ast.Compare,
    ast.List,
    ast.JoinedStr,
)
_MOST_CUTS = 50


@dataclass(frozen=True, slots=True)
class _CodeBlock:
    named: bool
    source: str


def extract_program(answer: str, entry: str | None = None, prompt: str = "") -> str | None:
    """Return the program in an answer, perhaps with syntax errors; None when nothing looks like code."""
    answer = cut_at_end_token(answer)
    source = _from_blocks(answer, entry, prompt)
    if not (prompt and entry):
        return _unfenced_code(answer) if source is None else source
    if source is None:
        source = _complete_prompt(prompt, answer, entry) or _unfenced_code(answer)
    if source is None or source.startswith(prompt):
        return source
    if defines_name(source, entry):
        return prompt_preamble(prompt, entry) + source
    return _complete_prompt(prompt, source, entry) or source


def parse_python(source: str) -> ast.Module | None:
    """Return the syntax tree; None when the text is not Python."""
    with warnings.catch_warnings():
        # Invalid escapes in a model's program are not our warnings.
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def syntax_problem(source: str) -> str | None:
    """Return why a text is not Python; None when it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(source, "program", "exec", dont_inherit=True)
        except SyntaxError as error:
            return f"{type(error).__name__}: {error.msg} (line {error.lineno})"
        except (ValueError, RecursionError, MemoryError) as error:
            return f"{type(error).__name__}: {error}"
    return None


def defines_name(source: str, entry: str) -> bool:
    """Whether a program binds this name at its top level, or defines it as a method of a top-level class."""
    return entry in bound_names(source, methods=True)


def prompt_preamble(prompt: str, entry: str) -> str:
    """Return the text before the function in a prompt that is code: imports and helpers. "" when it is not code."""
    tree = parse_python(prompt) or parse_python(f"{prompt.rstrip()}\n    pass\n")
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == entry:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            return "".join(prompt.splitlines(keepends=True)[: first - 1])
    return ""


def bound_names(source: str, *, methods: bool = False) -> set[str]:
    """Return the names that Python binds at its top level by def, class, = and from-import; also those of methods."""
    tree = parse_python(source)
    return _bound_in(tree.body, methods=methods) if tree else set()


def _bound_in(body: list[ast.stmt], *, methods: bool) -> set[str]:
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef) and methods:
            found |= _bound_in(node.body, methods=False)
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def _is_active_code(source: str) -> bool:
    """Whether this is Python with a statement that does something."""
    tree = parse_python(source)
    return tree is not None and any(map(_does_something, tree.body))


def _does_something(node: ast.stmt) -> bool:
    """Whether a statement is more than a value or an annotation ("42", "yes", "Answer: no")."""
    if isinstance(node, ast.AnnAssign):
        return node.value is not None
    return not (isinstance(node, ast.Expr) and isinstance(node.value, _INERT_NODES))


def _from_blocks(answer: str, entry: str | None, prompt: str) -> str | None:
    blocks = list(_python_blocks(answer))
    ranked = [block for block in blocks if not block.named] + [block for block in blocks if block.named]
    if entry:
        for block in reversed(ranked):
            if defines_name(block.source, entry):
                return block.source
    if entry and prompt:
        for block in reversed(ranked):
            if _complete_prompt(prompt, block.source, entry):
                return block.source
    for block in reversed(ranked):
        if _is_active_code(block.source):
            return block.source
    broken = [
        block.source
        for block in ranked
        if parse_python(block.source) is None and (block.named or _first_code_line(block.source))
    ]
    return broken[-1] if broken else None


def _python_blocks(text: str) -> Iterator[_CodeBlock]:
    """Yield fenced blocks that may be Python, in one pass; a block inside a list item is dedented."""
    inside: list[str] = []
    fence, label = "", ""
    for line in text.split("\n"):
        bare = line.strip()
        ticks = bare[: len(bare) - len(bare.lstrip("`"))]
        if not fence:
            if len(ticks) >= 3 and "`" not in bare[len(ticks) :]:
                info = bare[len(ticks) :]
                words = re.split(r"[\s{}:,]+", info.strip("{}. \t").lower(), maxsplit=1)
                fence, label, inside = ticks, words[0].lstrip("."), []
        elif len(ticks) >= len(fence) and bare == ticks:
            yield from _python_block(label, inside)
            fence = ""
        else:
            inside.append(line)
    if fence:
        yield from _python_block(label, inside)


def _python_block(label: str, lines: list[str]) -> Iterator[_CodeBlock]:
    source = "\n".join(lines)
    if len(source) <= LONGEST_PROGRAM and (label in _PYTHON_LABELS or not label):
        yield _CodeBlock(bool(label), source if parse_python(source) else _dedent_if_python(source))


def _dedent_if_python(source: str) -> str:
    moved = dedent(source)
    return moved if parse_python(moved) else source


def _first_code_line(text: str) -> int | None:
    """Return the number (from 1) of the first line that can only be code; None without one."""
    lines = text.split("\n")
    return next((number for number, line in enumerate(lines, 1) if _CODE_LINE.match(line.rstrip()[:1_000])), None)


def _unfenced_code(text: str) -> str | None:
    """Return the code of a text without fences."""
    if len(text) > LONGEST_PROGRAM:
        return None
    if _is_active_code(text):
        return text
    first = _first_code_line(text)
    if first is None:
        return None
    lines = text.split("\n")[first - 1 :]
    ends = [len(lines)] + [number for number in range(len(lines) - 1, 0, -1) if not lines[number].strip()]
    for end in ends[:_MOST_CUTS]:
        source = "\n".join(lines[:end])
        if parse_python(source):
            return source
    return "\n".join(lines)


def _complete_prompt(prompt: str, text: str, entry: str) -> str | None:
    """Return the prompt with this text as the rest of the function's body; None when that makes no function."""
    if len(text) > LONGEST_PROGRAM:
        return None
    start = prompt if prompt.endswith("\n") else prompt + "\n"
    for rest in (text, indent(text, "    ")):
        tree = parse_python(start + rest)
        if tree is not None and _has_body(tree, entry, 1 + start.count("\n")):
            return start + rest
    return None


def _has_body(tree: ast.Module, entry: str, line: int) -> bool:
    """Whether the function has a statement that does something from this line on."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name == entry
        and any(part.lineno >= line and _does_something(part) for part in node.body)
        for node in tree.body
    )
