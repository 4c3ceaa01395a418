"""A body in pieces: read without its media, sent on whole, and with what is added."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_vllm_docker.gateway.body import LONGEST_STRING, BadBody, RequestBody

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("x" * (LONGEST_STRING + 9)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@contextmanager
def fed(raw: bytes, size: int) -> Iterator[RequestBody]:
    body = RequestBody()
    try:
        for at in range(0, len(raw), size):
            body.feed(raw[at : at + size])
        yield body
    finally:
        body.close()


@settings(max_examples=150, deadline=None)
@given(
    data=st.dictionaries(st.text(), _JSON, max_size=4),
    size=st.integers(1, 50_000),
    ascii_only=st.booleans(),
)
def test_any_body_in_any_pieces(data: dict[str, Any], size: int, ascii_only: bool) -> None:
    raw = json.dumps(data, ensure_ascii=ascii_only).encode()
    added = {"cache_salt": "é", "mm_processor_kwargs": {"use_audio_in_video": True}}
    with fed(raw, max(size, len(raw) // 300)) as body:
        assert list(body.parse()) == list(data)
        assert b"".join(body.read()) == raw
        if data:
            longer = b"".join(body.read(added))
            assert len(longer) == body.length_with(added)
            assert json.loads(longer) == {**data, **added}


@pytest.mark.parametrize("tail", ["\\", "\\u00", "é", '\\"', "\\\\"])
def test_a_long_text_is_cut_anywhere_and_parses(tail: str) -> None:
    text = ("a" * 500 + tail * 20_000)[:60_000]
    raw = json.dumps({"a": text, "b": 1}, ensure_ascii=False).encode()
    for size in (7, 1000, 100_000):
        with fed(raw, max(size, len(raw) // 500)) as body:
            assert body.parse()["b"] == 1


def test_media_come_back_from_a_large_body(tmp_path: Path) -> None:
    video = bytes(number % 253 for number in range(2_000_000))
    url = f"data:video/mp4;base64,{base64.b64encode(video).decode()}"
    whole = json.dumps({"model": "m", "u": url})
    for raw in (whole.encode(), whole.replace("/", "\\/").encode()):
        with fed(raw, 65_536) as body:
            parsed = body.parse()
            assert len(parsed["u"]) < 1000
            assert body.save_media(parsed["u"], tmp_path / "v")
            assert (tmp_path / "v").read_bytes() == video


def test_a_small_one_comes_back_too(tmp_path: Path) -> None:
    with fed(b'{"model": "m", "u": "data:video/mp4;base64,aGVsbG8="}', 9) as body:
        assert body.save_media(body.parse()["u"], tmp_path / "v")
        assert (tmp_path / "v").read_bytes() == b"hello"
        assert not body.save_media("http://x/y.mp4", tmp_path / "v")
        assert not body.save_media("data:video/mp4;base64,A", tmp_path / "v")


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"a": ', b"null", b'"x', b"[" * 100_000])
def test_what_is_no_request_is_said(raw: bytes) -> None:
    with fed(raw, 1000) as body, pytest.raises(BadBody):
        body.parse()


def test_structure_has_a_limit() -> None:
    with pytest.raises(BadBody, match="too large"), fed(b"[" + b"1," * 9_000_000, 1 << 20):
        pass
