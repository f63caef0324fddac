"""An agent on the A2A SDK's own server; its first line is its address. Its key is in $AGENT_KEY.

It answers at once; "slowly ..." after a second, as a task; "ask ..." asks back.
"""

import asyncio
import os
import socket

import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_artifact_update_event, new_text_message
from a2a.helpers.proto_helpers import new_text_status_update_event
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, TaskState
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse


class Echo(AgentExecutor):
    """Repeats what it is asked."""

    async def execute(self, context, event_queue):
        asked = context.get_user_input()
        if "slowly" not in asked and "ask" not in asked:
            await event_queue.enqueue_event(new_text_message(f"heard: {asked}"))
            return
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        state = TaskState.TASK_STATE_INPUT_REQUIRED if "ask" in asked else TaskState.TASK_STATE_COMPLETED
        if "slowly" in asked:
            await asyncio.sleep(1)
            await event_queue.enqueue_event(
                new_text_artifact_update_event(task.id, task.context_id, "answer", f"thought: {asked}")
            )
        await event_queue.enqueue_event(new_text_status_update_event(task.id, task.context_id, state, "which one?"))

    async def cancel(self, context, event_queue):
        """Stop nothing."""


def main():
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(16)  # who comes before the server has begun waits
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    skill = AgentSkill(id="echo", name="echo", description="Repeats.", tags=["echo"])
    card = AgentCard(
        name="echo",
        description="Repeats.",
        version="1",
        supported_interfaces=[AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=False),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[skill],
    )
    handler = DefaultRequestHandler(agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=card)
    app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")])

    async def guarded(scope, receive, send):
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and headers.get(b"authorization") != f"Bearer {os.environ['AGENT_KEY']}".encode():
            await PlainTextResponse("no", 401)(scope, receive, send)
            return
        await app(scope, receive, send)

    print(url, flush=True)
    uvicorn.Server(uvicorn.Config(guarded, log_level="warning")).run(sockets=[listening])


main()
