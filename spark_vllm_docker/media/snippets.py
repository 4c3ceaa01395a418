"""A request as code to copy: Python with the `openai` client, or curl in a shell."""

from __future__ import annotations

import json
import re
import shlex
from pprint import pformat
from typing import Any

_FILE = re.compile(r"data:([\w./+-]+);base64,@(.+)", re.DOTALL)
_OWN = ("model", "messages", "max_tokens", "stream", "stream_options")
"""What the client takes by name; all else goes into `extra_body`, which it puts at the top."""


class _Code:
    """Stands for an expression in printed data."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def write_python(body: dict[str, Any], address: str) -> str:
    """A program that sends the body (with names for files) and prints the answer."""
    own = {key: _with_calls(value) for key, value in body.items() if key in _OWN}
    rest = {key: value for key, value in body.items() if key not in _OWN}
    arguments = [f"{key}={_indent(value)}" for key, value in own.items()]
    if rest:
        arguments.append(f"extra_body={_indent(rest)}")
    inner = ",\n    ".join(arguments)
    return f'''\
import base64
import os
from pathlib import Path

from openai import OpenAI


def data_url(mime, path):
    return f"data:{{mime}};base64,{{base64.b64encode(Path(path).read_bytes()).decode()}}"


client = OpenAI(base_url="{address}/v1", api_key=os.environ.get("VLLM_API_KEY", "none"))
answer = client.chat.completions.create(
    {inner},
)
for chunk in answer:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
'''


def write_curl(body: dict[str, Any], address: str) -> str:
    """A shell command; files are read while it sends."""
    text = json.dumps(body, ensure_ascii=False)
    pieces: list[str] = []
    at = 0
    for found in re.finditer(r'"data:([\w./+-]+);base64,@((?:[^"\\]|\\.)*)"', text):
        path = json.loads(f'"{found[2]}"')
        pieces.append(_printf(text[at : found.start()] + f'"data:{found[1]};base64,'))
        pieces.append(f"base64 -w0 {shlex.quote(path)}")
        at = found.end() - 1
    pieces.append(_printf(text[at:]))
    joined = ";\n  ".join(pieces)
    header = ' -H "Authorization: Bearer $VLLM_API_KEY"'
    return (
        f"{{ {joined}; }} |\n  curl -N {shlex.quote(f'{address}/v1/chat/completions')}{header} "
        "-H 'Content-Type: application/json' --data-binary @-\n"
    )


def _printf(text: str) -> str:
    return f"printf %s {shlex.quote(text)}"


def _with_calls(value: Any) -> Any:
    if isinstance(value, str) and (found := _FILE.fullmatch(value)):
        return _Code(f"data_url({found[1]!r}, {found[2]!r})")
    if isinstance(value, dict):
        return {key: _with_calls(item) for key, item in value.items()}
    return [_with_calls(item) for item in value] if isinstance(value, list) else value


def _indent(value: object) -> str:
    return pformat(value, width=92, sort_dicts=False).replace("\n", "\n    ")
