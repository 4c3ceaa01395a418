"""Reading a recipe and loading the engine at the same time.

pydantic and Jinja on the one side and docker-py on the other take 0.1 to 0.2 s each to import, all
of it CPU time. With two cores a forked child reads the recipe while this process loads the engine;
what the child made comes back through a pipe.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import TypeVar

from spark_vllm_docker.errors import SparkRecipeError

Made = TypeVar("Made")


def make_while(make: Callable[[], Made], meanwhile: Callable[[], object]) -> Made:
    """The result of `make`, which runs in a child while `meanwhile` runs here.

    Errors of ours are raised here as they were raised there. Whatever else goes wrong in the child
    is done once more in this process, where it shows itself with its traceback.
    """
    if (os.cpu_count() or 1) < 2:
        meanwhile()
        return make()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(make, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        try:
            meanwhile()
        finally:
            answer = pipe.read()
            os.waitpid(child, 0)
    if not answer:
        return make()
    result: Made | SparkRecipeError = pickle.loads(answer)  # noqa: S301 - of our own child
    if isinstance(result, SparkRecipeError):
        raise result
    return result


def _answer(make: Callable[[], object], writing: int) -> None:
    """In the child: write the result, and end without the parent's exit handlers."""
    try:
        try:
            result = make()
        except SparkRecipeError as error:
            result = error
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickle.dumps(result))
    finally:
        os._exit(0)
