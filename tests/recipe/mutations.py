"""Recipes with something broken in them: keys, types, bytes, nesting, anchors, sizes."""

from __future__ import annotations

import random

VERSION_1 = """\
recipe_version: "1"
name: a
container: vllm/vllm-openai:v0.20.0
description: some words
solo_only: true
mods: []
env:
  A: "x $HOME"
  B: '{"json": [1, 2]}'
defaults:
  port: 8000
  host: 0.0.0.0
  gpu_memory_utilization: 0.8
command: |
  pip install -q x && \\
  vllm serve org/m \\
    --port {port} --host {host} \\
    --gpu-memory-utilization {gpu_memory_utilization} \\
    --limit-mm-per-prompt '{{"video":1}}' \\
    -tp 2 -O3 -cc.mode=3
"""
VERSION_2 = """\
recipe_version: "2"
model: org/m
runtime: vllm
container: vllm/vllm-openai:v0.24.0
min_nodes: 1
max_nodes: 2
metadata: {description: words, tags: [a, b]}
defaults:
  port: 8000
  tensor_parallel: 2
  speculative_config: '{"method": "mtp"}'
env: {A: b}
overrides:
  - when: {nodes: 1, config: {port: {gt: 10}}}
    defaults: {max_num_seqs: 4}
pre_exec: ["echo {port}"]
command: vllm serve {model} --port {port} -tp {tensor_parallel} --speculative-config '{speculative_config}'
"""
STRUCTURED = """\
name: a
model: org/m
container: vllm/vllm-openai:v0.20.0
tags: [x]
modalities: [text, video]
hardware: [dgx-spark]
env: {A: b}
setup: [pip install x]
shm_size: 8g
volumes: ["a:/b:ro"]
serve:
  port: 8000
  max-model-len: 64K
  media-io-kwargs: {video: {fps: 2}}
  enable-prefix-caching: true
  served-model-name: [a, b]
when:
  h100: {serve: {port: 1, seed: null}, env: {A: c}}
  cpu: null
"""
SEEDS = (VERSION_1, VERSION_2, STRUCTURED)

_VALUES = [
    *(
        "",
        "null",
        "true",
        "[]",
        "{}",
        "[1, {a: b}]",
        "{a: {b: [c]}}",
        "-1",
        "1e999",
        ".nan",
        "0x7f",
    ),
    *("9" * 400, "!!python/object:x {}", "!!binary aGk=", "2001-01-01", "*missing", "&a [1]"),
    *("'{{'", "'{x'", "'}'", "'{0}'", "'{a.b}'", "'{a!z}'", "'{a:>99999}'", '"\\x00"', '"\\ud800"'),
    *("|\n    text\n", ">-\n    text\n", "'it''s'", '"$(x)"', "'`x`'", "<<", "?", "- - - x"),
]
_PIECES = [
    "{",
    "}",
    "[",
    "]",
    ":",
    "- ",
    "#",
    "'",
    '"',
    "\t",
    "\n",
    "\0",
    "\u2028",
    "|",
    "&x ",
    "*x",
]


def mutate(text: str, source: random.Random) -> str:
    """One to four changes of a kind that people, editors and attackers make."""
    for _ in range(source.randint(1, 4)):
        text = source.choice(_MUTATIONS)(text, source) or " "
    return text


def _replace_value(text: str, source: random.Random) -> str:
    rows = text.split("\n")
    at = source.randrange(len(rows))
    key, colon, _ = rows[at].partition(":")
    rows[at] = f"{key}{colon} {source.choice(_VALUES)}"
    return "\n".join(rows)


def _misspell(text: str, source: random.Random) -> str:
    at = source.randrange(len(text))
    return text[:at] + source.choice("abz_-A. ") + text[at + source.randint(0, 2) :]


def _insert(text: str, source: random.Random) -> str:
    at = source.randrange(len(text))
    return text[:at] + source.choice(_PIECES) * source.choice((1, 1, 2, 50)) + text[at:]


def _move_rows(text: str, source: random.Random) -> str:
    rows = text.split("\n")
    source.shuffle(rows)
    return "\n".join(rows)


def _repeat_row(text: str, source: random.Random) -> str:
    rows = text.split("\n")
    at = source.randrange(len(rows))
    return "\n".join(rows[:at] + [rows[at]] * source.choice((2, 3, 200)) + rows[at:])


def _indent(text: str, source: random.Random) -> str:
    rows = text.split("\n")
    at = source.randrange(len(rows))
    rows[at] = " " * source.randint(1, 9) + rows[at]
    return "\n".join(rows)


def _cut(text: str, source: random.Random) -> str:
    return text[: source.randrange(len(text))]


def _nest(text: str, source: random.Random) -> str:
    depth = source.choice((5, 40, 3000))
    opening, closing = source.choice((("[", "]"), ("{a: ", "}")))
    return f"{text}deep: {opening * depth}x{closing * depth}\n"


def _bomb(text: str, source: random.Random) -> str:
    rows = ["b0: &b0 [x, x, x, x, x]"]
    rows += [
        f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]" for n in range(1, source.randint(2, 9))
    ]
    return text + "\n".join(rows) + "\n"


def _grow(text: str, source: random.Random) -> str:
    size = source.choice((10_000, 500_000, 10_000_000))
    return text.replace("org/m", source.choice("x{$'\\ ") * size, 1)


def _many_keys(text: str, source: random.Random) -> str:
    count = source.choice((100, 5_000, 30_000))
    return text + "".join(f"k{n}: {n}\n" for n in range(count))


_MUTATIONS = (
    *(_replace_value, _misspell, _insert) * 4,
    *(_move_rows, _repeat_row, _indent, _cut) * 2,
    *(_nest, _bomb, _grow, _many_keys),
)
