"""What `doctor` says of machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_vllm_docker.plan.host import HostFacts, State, examine

GOOD = HostFacts(
    engine="docker 28.0 unix:///var/run/docker.sock",
    engine_error="",
    engine_fix="",
    engine_has_gpus=True,
    driver="580.95.05",
    gpus=("NVIDIA GB10",),
    hardware="dgx-spark",
    unified=True,
    memory_total_gib=121.7,
    memory_free_gib=110.0,
    swap_gib=0.0,
    earlyoom=True,
    image_folder="/var/lib/docker",
    image_free_gib=500.0,
    cache_folder="/home/u/.cache/huggingface",
    cache_free_gib=500.0,
    cache_writable=True,
    has_token=True,
    token_from="HF_TOKEN",
    hub_error="",
    taken_ports={8004: ""},
)


def test_a_good_machine_has_only_good_lines() -> None:
    lines = examine(GOOD)
    assert {line.state for line in lines} == {State.OK}
    assert all(line.why and line.found for line in lines)
    assert "NVML reports none" in next(line.found for line in lines if line.name == "memory")


@pytest.mark.parametrize(
    ("change", "name", "state", "mend"),
    [
        ({"engine_error": "no engine", "engine_fix": "start it"}, "engine", "error", "start it"),
        ({"engine_has_gpus": False}, "gpu support", "error", "nvidia-container-toolkit"),
        ({"engine_has_gpus": None}, "gpu support", "unknown", ""),
        ({"driver": ""}, "driver", "error", "ubuntu-drivers"),
        ({"driver": "535.1"}, "driver", "warning", "nvidia-driver-580"),
        ({"gpus": ()}, "gpu", "error", "dmesg"),
        ({"hardware": "", "unified": False}, "gpu", "warning", "--hardware"),
        ({"memory_free_gib": 40.0}, "memory", "warning", "spark-recipe ps"),
        ({"memory_total_gib": None}, "memory", "unknown", ""),
        ({"swap_gib": 16.0}, "swap", "warning", "swapoff"),
        ({"earlyoom": False}, "earlyoom", "warning", "apt-get install earlyoom"),
        ({"image_free_gib": 10.0}, "disk for images", "warning", "prune"),
        ({"image_free_gib": 2.0}, "disk for images", "error", "prune"),
        ({"image_free_gib": None}, "disk for images", "unknown", ""),
        ({"cache_free_gib": 20.0}, "disk for weights", "warning", "hf cache"),
        ({"cache_writable": False}, "cache", "warning", "chown"),
        ({"cache_writable": None}, "cache", "ok", ""),
        ({"has_token": False}, "hub token", "warning", "HF_TOKEN"),
        ({"hub_error": "no route"}, "hub", "warning", "HF_ENDPOINT"),
        ({"hub_error": None}, "hub", "unknown", ""),
        ({"taken_ports": {8004: "taken by x"}}, "port 8004", "error", "--set port=8005"),
    ],
)
def test_each_lack_is_a_line_with_what_mends_it(
    change: dict[str, Any], name: str, state: str, mend: str
) -> None:
    (line,) = [line for line in examine(replace(GOOD, **change)) if line.name == name]
    assert line.state == state
    assert mend in line.mend
    assert bool(line.mend) is (state in ("error", "warning"))
