"""A chat endpoint in a process of its own for the serving benchmarks: prints its port, answers after a fixed pause.

    python benchmarks/serving_endpoint.py SECONDS

It understands no more HTTP than the workers speak, so that it takes little of the two cores. Streamed answers carry the
moment at which each piece was sent (nanoseconds of the monotonic clock, which processes of one machine share). Who asks
for no stream gets one JSON object.
"""

import asyncio
import json
import sys
from time import perf_counter_ns

_USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
_STREAMED = (b'"stream":true', b'"stream": true')
_CHOICE = {"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}
_WHOLE = json.dumps(
    {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [_CHOICE], "usage": _USAGE}
).encode()


def _chunk(delta: object, finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}
    data = b"data: " + json.dumps(body).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            named = head.lower().partition(b"content-length: ")[2]
            if not named:  # a probe, or a body in chunks
                break
            length = int(named.split(b"\r\n")[0])
            body = await reader.readexactly(length)
            await asyncio.sleep(seconds)
            if not any(each in body for each in _STREAMED):
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                writer.write(head % len(_WHOLE) + _WHOLE)
                await writer.drain()
                continue
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(4):
                writer.write(_chunk({"role": "assistant", "content": f"{perf_counter_ns()} "}))
                if seconds >= 0.01:
                    await asyncio.sleep(0.005)
            end = _chunk({}, "stop", usage=_USAGE)
            writer.write(end + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _main(seconds: float) -> None:
    server = await asyncio.start_server(lambda r, w: _answer(r, w, seconds), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(float(sys.argv[1])))
