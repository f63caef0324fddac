"""A Task can be put to someone and be kept; its hash names what it says."""

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shikisha.core.budget import Caps
from shikisha.core.errors import TaskError
from shikisha.core.events import RunStarted
from shikisha.core.messages import (
    REQUIRED_TOOL,
    Attachment,
    ChatMessage,
    Json,
    MediaKind,
    Speaker,
    ToolCall,
    ToolExchange,
    ToolResult,
    name_tool_choice,
    tool_name,
)
from shikisha.core.run import Run
from shikisha.core.task import Task, storage_problem
from shikisha.journal.codec import body_text, decode_event, encode_event

TOOL: Mapping[str, Json] = {"type": "function", "function": {"name": "f"}}
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=9)
calls = st.builds(ToolCall, words, words, words)
attachments = st.builds(
    Attachment, st.sampled_from(MediaKind), st.just("a/b"), words, st.just("aGk="), st.just(""), words
)
spoken = st.builds(
    ChatMessage,
    st.sampled_from(Speaker),
    words,
    st.lists(calls, max_size=2).map(tuple),
    words,
    st.lists(attachments, max_size=2).map(tuple),
)
values = st.recursive(st.none() | st.booleans() | st.integers() | words, lambda inner: st.lists(inner, max_size=2))
tasks = st.builds(
    Task,
    words.map("p{}".format),
    history=st.lists(spoken, max_size=3).map(tuple),
    attachments=st.lists(attachments, max_size=2).map(tuple),
    exchanges=st.lists(
        st.builds(
            lambda call, said, text: ToolExchange((call,), (ToolResult(call.id, said),), text), calls, words, words
        ),
        max_size=2,
    ).map(tuple),
    parallel_tool_calls=st.none() | st.booleans(),
    answer_schema=st.none() | st.dictionaries(words, values, max_size=2),
    options=st.dictionaries(st.sampled_from(["stop", "seed", "verbosity"]), values, max_size=2),
)
plain_tasks = tasks
tasks = plain_tasks | st.builds(
    lambda task, choice: replace(task, tools=(TOOL,), tool_choice=choice),
    plain_tasks,
    st.sampled_from(["", REQUIRED_TOOL, name_tool_choice(tool_name(TOOL))]),
)
texts = st.text(min_size=1).filter(lambda text: bool(text.strip()) and "\0" not in text)


@pytest.mark.parametrize("prompt", ["", " \n\t"])
def test_an_empty_prompt_is_no_task(prompt: str) -> None:
    with pytest.raises(TaskError, match="the prompt is empty"):
        Task(prompt)


@pytest.mark.parametrize("field", ["prompt", "context", "id"])
@pytest.mark.parametrize(("bad", "said"), [("a\0", "a NUL character"), ("a\ud83c", "half of a surrogate pair")])
def test_text_that_no_journal_can_keep_is_no_task(field: str, bad: str, said: str) -> None:
    with pytest.raises(TaskError, match=f"the {field} holds {said}"):
        Task(**{"prompt": "fine", field: bad})  # type: ignore[arg-type]  # the other fields are not named here


@given(st.text(st.characters()))
def test_what_is_storable_can_be_encoded_and_has_no_nul(text: str) -> None:
    try:
        fine = b"\0" not in text.encode()
    except UnicodeEncodeError:
        fine = False
    assert (storage_problem(text) is None) == fine


@given(texts, st.text().filter(lambda text: "\0" not in text))
def test_the_hash_is_that_of_prompt_and_context_alone(prompt: str, context: str) -> None:
    assert Task(prompt, context).content_hash == Task(prompt, context, "id", "domain", ("label",)).content_hash
    assert Task(prompt, context).content_hash != Task(prompt, context + "x").content_hash
    assert Task(prompt, context).content_hash != Task(prompt + "x", context).content_hash


def test_the_hash_knows_where_the_prompt_ends() -> None:
    assert Task("ab", "c").content_hash != Task("a", "bc").content_hash


@given(tasks)
def test_a_task_comes_back_from_the_journal_as_it_was(task: Task) -> None:
    begun = RunStarted(
        run="r",
        at=1.0,
        conductor="c",
        pool=("w",),
        caps=Caps(),
        prompt=task.prompt,
        parallel_tool_calls=task.parallel_tool_calls,
        tool_choice=task.tool_choice,
        tenant=task.tenant,
        **task.bodies(),
    )
    entry = encode_event(begun)
    texts = {key: body_text(body) for key, body in entry.bodies}
    (back,) = [decode_event(entry.kind, entry.run, entry.at, entry.data, texts)]
    assert Run.fold([back]).task == task
    assert hash(Run.fold([back]).task) == hash(task)


def test_a_plain_task_leaves_nothing_of_this_in_the_journal() -> None:
    assert not any(Task("q").bodies().values())
    assert Task("q").bare


@given(tasks)
def test_the_hash_is_the_same_for_the_same_and_another_for_a_longer_conversation(task: Task) -> None:
    plain = Task(task.prompt)
    extended = replace(task, history=(*task.history, ChatMessage(Speaker.USER, "more")))
    assert task.content_hash == replace(task, options={}, parallel_tool_calls=None).content_hash
    assert extended.content_hash != task.content_hash
    assert plain.content_hash == sha256(f"{len(plain.prompt)}:{plain.prompt}".encode()).hexdigest()


@given(tasks, words.filter(lambda text: len(text) > 3))
def test_invariant_8_a_key_is_masked_wherever_it_stands(task: Task, key: str) -> None:
    everywhere = replace(
        task,
        history=(*task.history, ChatMessage(Speaker.USER, key, (ToolCall(key, key, key),))),
        attachments=(Attachment(MediaKind.FILE, "a/b", key, "aGk="),),
        tools=({**TOOL, "note": [key, {key: key}]},),
        answer_schema={"title": key},
        options={"stop": [key]},
    )
    scrubbed = everywhere.scrubbed(lambda text: text.replace(key, "?"))
    assert key not in json.loads(f"[{','.join(filter(None, map(str, scrubbed.bodies().values())))}]").__repr__()


def test_what_every_worker_may_see_is_what_was_said_and_no_more() -> None:
    task = Task("q", history=(ChatMessage(Speaker.USER, "a"),), tools=(TOOL,), answer_schema={}, options={"seed": 1})
    assert task.shown() == Task("q", history=task.history)
    assert Task("q", history=task.history).shown() == task.shown()


BAD: list[tuple[dict[str, object], str]] = [
    ({"history": (ChatMessage(Speaker.USER, "a\0"),)}, "the history holds a NUL"),
    ({"history": (ChatMessage(Speaker.USER, "a\ud83c"),)}, "the history holds half of a surrogate"),
    ({"tools": ({"type": "function", "function": {"name": "f", "description": "\0"}},)}, "the tools holds a NUL"),
    ({"answer_schema": {"title": "\ud83c"}}, "the answer_schema holds half"),
    ({"tools": ({"type": "web_search"},)}, "expected a function tool with a name"),
    ({"tools": ({"type": "function", "function": {}},)}, "expected a function tool with a name"),
    ({"tools": (TOOL, TOOL)}, "two have the same name"),
    ({"tools": (TOOL,), "tool_choice": "tool:g"}, "one of the tools \\(f\\)"),
    ({"tools": (TOOL,), "tool_choice": "none"}, "one of the tools"),
    ({"tool_choice": "required"}, "there are no tools"),
    ({"options": {"logprobs": True}}, "options: logprobs: expected some of"),
    ({"options": {"max_completion_tokens": 0}}, "expected a whole number from 1"),
    ({"options": {"max_completion_tokens": True}}, "expected a whole number from 1"),
    ({"options": {"temperature": float("nan")}}, "not JSON"),
    ({"answer_schema": {"a": {1, 2}}}, "not JSON"),
    ({"exchanges": (ToolExchange((ToolCall("1", "f", "{}"),)),)}, "one result for each call"),
    ({"exchanges": (ToolExchange(()),)}, "one result for each call"),
]


@pytest.mark.parametrize(("parts", "said"), BAD)
def test_what_is_no_part_of_a_task_says_why(parts: dict[str, object], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        Task("q", **parts)  # type: ignore[arg-type]  # some of them are of no right kind


def test_a_text_that_spells_an_escape_is_fine() -> None:
    assert (
        Task("q", history=(ChatMessage(Speaker.USER, "write \\u0000 for NUL"),)).history[0].text
        == "write \\u0000 for NUL"
    )
