"""The A2A SDK's own client: reads the card of the server, sends it a question, and prints the answer."""

import asyncio
import os
import sys

import httpx
from a2a.client import A2ACardResolver
from a2a.client.client import ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.helpers.proto_helpers import get_artifact_text, new_text_message
from a2a.types.a2a_pb2 import GetTaskRequest, Role, SendMessageRequest, TaskState


async def main():
    base, key = os.environ["SHIKISHA_URL"].removesuffix("/v1"), os.environ["SHIKISHA_KEY"]
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
        card = await A2ACardResolver(http, base).get_agent_card()
        client = ClientFactory(ClientConfig(streaming=False, httpx_client=http)).create(card)
        asked = SendMessageRequest(message=new_text_message(sys.argv[1], role=Role.ROLE_USER))
        task = None
        async for event in client.send_message(asked):
            task = event.task
        again = await client.get_task(GetTaskRequest(id=task.id))
        print(card.name, TaskState.Name(again.status.state), get_artifact_text(again.artifacts[0]), sep="|")


asyncio.run(main())
