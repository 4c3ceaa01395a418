"""A quick stand-in for benchmarks: `uvicorn tests.stand_in.asgi_server:app`.

Text is answered at once, in 20 pieces. A video takes `PREFILL_S` before its first piece and one of
four places; a text waits when all four are taken, as behind `--max-num-seqs 4`.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

PREFILL_S = float(os.environ.get("PREFILL_S", "1.0"))
PIECE_S = float(os.environ.get("PIECE_S", "0"))
PIECES = 20
_places = asyncio.Semaphore(4)


def piece(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = [(b"content-type", b"text/event-stream")]
    if scope["path"] == "/v1/models":
        listed = {"data": [{"id": "m", "max_model_len": 8192}]}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(listed).encode()})
        return
    async with _places:
        if b"video_url" in body:
            await asyncio.sleep(PREFILL_S)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(PIECES):
            await send({"type": "http.response.body", "body": piece("word "), "more_body": True})
            if PIECE_S:
                await asyncio.sleep(PIECE_S)
        end = piece("", "stop") + b"data: [DONE]\n\n"
        await send({"type": "http.response.body", "body": end})
