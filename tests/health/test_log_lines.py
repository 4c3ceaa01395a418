from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_vllm_docker.health.log_lines import (
    MAX_LINE_BYTES,
    LineSplitter,
    LogLine,
    clean_text,
    parse_line,
)


@given(st.binary(max_size=300), st.integers(1, 20))
def test_the_size_of_chunks_does_not_matter(data: bytes, size: int) -> None:
    whole, parts = LineSplitter(), LineSplitter()
    expected = whole.feed(data) + whole.end()
    found = [line for at in range(0, len(data), size) for line in parts.feed(data[at : at + size])]
    assert found + parts.end() == expected


def test_a_log_without_line_ends_costs_no_memory() -> None:
    splitter = LineSplitter()
    for _ in range(2000):
        assert splitter.feed(b"x" * 100_000) == []
    (line,) = splitter.feed(b"\nnext")
    assert line == "x" * MAX_LINE_BYTES + f" … [{200_000_000 - MAX_LINE_BYTES} bytes more]"
    assert splitter.end() == ["next"]


def test_progress_bars_are_lines() -> None:
    assert LineSplitter().feed(b"  0%\r 50%\r\n\n100%\n") == ["  0%", " 50%", "100%"]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "0;titlex"),
        ("a\x00b\x08c\td", "abc\td"),
        ("\x1b[2J\x1b[Hgone", "gone"),
    ],
)
def test_a_log_does_not_steer_the_terminal(text: str, clean: str) -> None:
    assert clean_text(text) == clean


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (
            "(EngineCore pid=5025) INFO 11-30 15:09:45 [a.py:47] Starting to load",
            LogLine("EngineCore", "INFO", "Starting to load"),
        ),
        ("(APIServer pid=1) INFO:     Started", LogLine("APIServer", "INFO", "Started")),
        ("(Worker_TP0 pid=2) Loading x", LogLine("Worker_TP0", "", "Loading x")),
        ("ERROR 11-30 15:09:45 [a.py:47]   File", LogLine("", "ERROR", "  File")),
        ("plain", LogLine("", "", "plain")),
        ("(APIServer pid=1) ", LogLine("APIServer", "", "")),
    ],
)
def test_decoration_is_taken_off(line: str, parts: LogLine) -> None:
    assert parse_line(line) == parts
