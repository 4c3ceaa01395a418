from __future__ import annotations

import pytest

from spark_vllm_docker.diagnose.death import explain_death
from spark_vllm_docker.diagnose.root_line import RootLine, RootLineFinder
from spark_vllm_docker.health.log_lines import parse_line


def root_of(log: str) -> RootLine | None:
    finder = RootLineFinder()
    for line in log.splitlines():
        finder.feed(parse_line(line))
    return finder.result()


def test_the_first_real_error_and_what_it_led_to() -> None:
    root = root_of(
        "(APIServer pid=1) Traceback (most recent call last):\n"
        '(APIServer pid=1)   File "a.py", line 1\n'
        "(APIServer pid=1) KeyError: 'first'\n"
        "(APIServer pid=1) \n"
        "(APIServer pid=1) During handling of the above exception, another exception occurred:\n"
        "(APIServer pid=1) \n"
        "(APIServer pid=1) Traceback (most recent call last):\n"
        "(APIServer pid=1) OSError: second\n"
    )
    assert root == RootLine("KeyError: 'first'", "APIServer", "OSError: second")


def test_processes_do_not_mix() -> None:
    root = root_of(
        "(Worker_TP0 pid=1) Traceback (most recent call last):\n"
        "(APIServer pid=2) INFO 11-30 15:09:45 [a.py:1] ValueError: only words\n"
        "(Worker_TP0 pid=1) torch.OutOfMemoryError: CUDA out of memory.\n"
    )
    assert root == RootLine("torch.OutOfMemoryError: CUDA out of memory.", "Worker_TP0")


@pytest.mark.parametrize(
    ("line", "is_root"),
    [
        ("/bin/bash: line 3: vllm: command not found", True),
        ("ERROR: Could not find a version that satisfies the requirement vllm[audio]", True),
        ("vllm: error: unrecognized arguments: --x", True),
        ("INFO 11-30 15:09:45 [a.py:1] vllm: error: no", False),
        ("UserWarning: something", False),
        ("ValueError: without a traceback", False),
    ],
)
def test_single_lines(line: str, is_root: bool) -> None:
    assert (root_of(line) is not None) is is_root


def test_a_traceback_that_was_only_warned_about_is_not_the_cause() -> None:
    log = (
        "WARNING 11-30 15:09:45 [a.py:1] Traceback (most recent call last):\n"
        "WARNING 11-30 15:09:45 [a.py:1] ImportError: optional\n"
    )
    assert root_of(log) is None


def test_requests_that_fail_while_serving_are_not_the_cause() -> None:
    finder = RootLineFinder()
    finder.forget()
    for line in (
        "(APIServer pid=1) Traceback (most recent call last):",
        "(APIServer pid=1) ValueError: a bad request",
        "(EngineCore pid=2) ERROR 11-30 15:09:45 [a.py:1] Traceback (most recent call last):",
        "(EngineCore pid=2) ERROR 11-30 15:09:45 [a.py:1] RuntimeError: shape mismatch",
    ):
        finder.feed(parse_line(line))
    assert finder.result() == RootLine("RuntimeError: shape mismatch", "EngineCore")


@pytest.mark.parametrize(
    ("code", "root", "oom", "cause"),
    [
        (1, RootLine("ValueError: x", "EngineCore"), "", "EngineCore: ValueError: x"),
        (1, RootLine("a", "APIServer", "b"), "", "a (and so: b)"),
        (
            1,
            RootLine("ValueError: x"),
            "python3 held 90.0 GiB",
            "the kernel killed a process of the server: out of memory (python3 held 90.0 GiB)",
        ),
        (0, None, "", "the server ended by itself and left no error (its exit code is 0)"),
        (137, None, "", "SIGKILL from outside: docker kill, or the kernel when memory ran out"),
        (143, None, "", "SIGTERM from outside: somebody stopped it"),
        (139, None, "", "signal 11 ended the server"),
        (127, None, "", "the image does not have the command that the recipe runs"),
        (9, None, "", "the server left no error; its exit code is 9"),
    ],
)
def test_cause_and_fix_are_one_line_each(
    code: int, root: RootLine | None, oom: str, cause: str
) -> None:
    death = explain_death(code, root, "m", out_of_memory=oom)
    assert death.cause == cause
    assert "spark-recipe logs m" in death.fix
    assert "\n" not in death.cause + death.fix


def test_an_echo_says_that_a_process_was_killed() -> None:
    death = explain_death(0, RootLine("Worker proc died", "EngineCore", echo=True), "m")
    assert death.cause.startswith("a process of the server was killed and left no error of its own")


@pytest.mark.parametrize("order", [1, -1], ids=["stdout-first", "stderr-first"])
def test_a_step_that_fails_is_named_with_its_last_words(order: int) -> None:
    finder = RootLineFinder()
    lines = ("all fine", "spark-recipe: a step ended with 1: test -f /no/such/file")
    for text in lines[::order]:
        finder.feed(parse_line(text))
    root = finder.before_the_server()
    death = explain_death(1, root, "r")
    assert death.cause == "a step ended with 1: test -f /no/such/file; its last line: all fine"
    assert death.fix.startswith("the server was not begun; mend the step or the mod")


def test_a_step_that_fails_in_silence_is_named() -> None:
    finder = RootLineFinder()
    finder.feed(parse_line("spark-recipe: a step ended with 1: false"))
    root = finder.before_the_server()
    assert root is not None
    assert root.text == "a step ended with 1: false"
