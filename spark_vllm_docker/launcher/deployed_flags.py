"""The flags of a deployment, from the command that its container has."""

from __future__ import annotations

from spark_vllm_docker.catalog.flags import find_release
from spark_vllm_docker.catalog.image_versions import read_vllm_version
from spark_vllm_docker.engine.protocol import Deployed
from spark_vllm_docker.findings import Where
from spark_vllm_docker.recipe.arguments import Arguments, read_arguments
from spark_vllm_docker.recipe.command import Argument
from spark_vllm_docker.recipe.serve import find_serve_words


def read_deployed_flags(deployed: Deployed) -> tuple[str, Arguments]:
    """The vLLM release, empty where the image does not say, and the flags of `vllm serve`."""
    version = read_vllm_version(deployed.image) or ""
    place = Where(deployed.name)
    words = find_serve_words(deployed.script) or ()
    arguments = read_arguments(
        [Argument(place, word.value) for word in words], find_release(version).flags
    )
    return version, arguments
