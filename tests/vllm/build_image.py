"""Have the vllm-cpu image built before the tests begin, with its progress on the screen."""

from __future__ import annotations

import os
import sys
import time

from spark_vllm_docker.engine.docker import DockerEngine, find_docker_address
from spark_vllm_docker.health.phases import PhaseClock
from spark_vllm_docker.launcher.images import find_image_source, provide_image
from spark_vllm_docker.launcher.ticking import ticking
from spark_vllm_docker.recipe.load import load_recipe
from spark_vllm_docker.recipe.lookup import find_recipe
from spark_vllm_docker.ui.plain import PlainScreen


def main() -> None:
    engine = DockerEngine(find_docker_address(os.environ))
    recipe = load_recipe(find_recipe("tiny-cpu"))
    screen = PlainScreen(sys.stderr, show_log=False)
    with ticking(PhaseClock(screen, time.monotonic()), screen) as emit:
        provide_image(engine, find_image_source(recipe.keys.container, None), os.environ, emit)
    engine.close()


if __name__ == "__main__":
    main()
