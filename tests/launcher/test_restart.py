"""A server is started again only when that can help."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_vllm_docker.errors import Remedy, ServerFailed
from spark_vllm_docker.launcher.down import FreedMemory, wait_for_memory
from spark_vllm_docker.launcher.restart import RestartGuard


def failure(kind: str | None, *, served: bool) -> ServerFailed:
    remedy = Remedy("r", kind=kind) if kind is not None else None
    return ServerFailed("x", remedy=remedy, served=served)


def guard(most: int, *free: float | None) -> tuple[RestartGuard, list[float]]:
    values: Iterator[float | None] = iter([*free, *[free[-1] if free else None] * 1000])
    slept: list[float] = []
    return RestartGuard(most, lambda: next(values), slept.append), slept


@pytest.mark.parametrize(
    ("kind", "served", "why"),
    [
        (None, True, ""),
        ("host", True, ""),
        ("host", False, ""),
        (None, False, "it never served: the same start would end the same way"),
        ("flag", False, "it never served: the same start would end the same way"),
        ("flag", True, "the fault is one of the flag: it would come back"),
        ("image", True, "the fault is one of the image: it would come back"),
    ],
)
def test_only_what_may_go_better_is_tried_again(kind: str | None, served: bool, why: str) -> None:
    guarded, _ = guard(2, 100.0)
    assert guarded.refuse(failure(kind, served=served)) == why


def test_it_waits_longer_each_time_and_ends() -> None:
    guarded, slept = guard(3, None)
    died = failure(None, served=True)
    assert [guarded.refuse(died) for _ in range(4)] == ["", "", "", "3 restarts are enough"]
    assert slept == [5.0, 10.0, 20.0]
    assert guard(0, 1.0)[0].refuse(died) == "no --restart"


def test_memory_must_have_come_back() -> None:
    guarded, slept = guard(1, 100.0, 20.0, 50.0, 95.0)
    assert guarded.refuse(failure(None, served=True)) == ""
    assert slept == [5.0, 5.0, 5.0]
    guarded, slept = guard(1, 100.0, 20.0)
    assert "its memory has not come back: 20.0 GiB are free" in guarded.refuse(
        failure(None, served=True)
    )
    assert sum(slept) < 200


def test_down_says_whether_the_memory_is_back() -> None:
    values = iter([30.0, 60.0])
    assert wait_for_memory(20.0, 80.0, lambda: next(values), lambda _: None) == FreedMemory(
        60.0, is_back=True
    )
    assert wait_for_memory(20.0, 80.0, lambda: 25.0, lambda _: None) == FreedMemory(
        25.0, is_back=False
    )
    assert wait_for_memory(20.0, 80.0, lambda: None, lambda _: None) is None
