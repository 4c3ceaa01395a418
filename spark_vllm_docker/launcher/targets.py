"""What a user means by NAME: the container's name, the recipe's name, or the name of its file."""

from __future__ import annotations

from collections.abc import Sequence

from spark_vllm_docker.engine.protocol import Deployed
from spark_vllm_docker.errors import NotDeployed
from spark_vllm_docker.findings import did_you_mean
from spark_vllm_docker.render.spec import LABEL


def choose_target(ours: Sequence[Deployed], name: str) -> Deployed:
    """The deployment of ours that `name` means.

    Raises:
        NotDeployed: none, or more than one; containers of others do not count.
    """
    exact = [d for d in ours if d.name == name]
    if len(exact) == 1:
        return exact[0]
    if exact:
        raise NotDeployed(
            f"'{name}' is deployed on two engines",
            hint="say which: --engine docker or --engine process",
        )
    stem = name.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")
    found = [d for d in ours if d.recipe == name or d.labels.get(f"{LABEL}.file") == stem]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(d.name for d in found)
        raise NotDeployed(f"'{name}' means more than one deployment: {names}")
    hint = did_you_mean(name, [d.name for d in ours])
    if not ours:
        hint = "; nothing is deployed"
    raise NotDeployed(f"there is no deployment '{name}'{hint}", hint="spark-recipe ps")


def describe_result(deployed: Deployed) -> dict[str, object]:
    """A deployment as it stands in JSON documents."""
    return {
        "name": deployed.name,
        "recipe": deployed.recipe,
        "image": deployed.image,
        "state": deployed.state,
        "endpoint": deployed.endpoint,
        "base_url": f"{deployed.endpoint}/v1",
        "served": list(deployed.served),
        "spec": deployed.spec_digest,
        "started_at": deployed.started_at or None,
        "server_exit_code": deployed.exit.code if deployed.exit else None,
        "out_of_memory": deployed.exit.out_of_memory if deployed.exit else None,
    }
