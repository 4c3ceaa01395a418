"""The numbers of reading recipes: many files in one process, and mutated ones.

`python -m tests.bench.recipes FOLDER` reads every file of a folder and prints, as JSON, the slowest
reading in seconds and the largest growth of this process's memory by one file in MiB.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from spark_vllm_docker.errors import InvalidRecipe
from spark_vllm_docker.plan.check import check_recipe
from spark_vllm_docker.recipe.forms import Form
from spark_vllm_docker.recipe.load import load_recipe
from spark_vllm_docker.recipe.nodes import Nodes
from tests.conftest import ROOT
from tests.recipe.mutations import SEEDS, mutate
from tests.render.docker_run_reader import bash_words
from tests.render.test_upstream_rules import FILES, MACHINES, our_command, upstream_command

COUNT = 10_000
BATCH = 500
CORPUS = ROOT.parent / "shared/recipes-corpus/eugr"


def check_many(command: str, folder: Path) -> tuple[float, str]:
    """Seconds that `check` takes for 300 different files, and what they are."""
    sources = sorted(CORPUS.glob("*.yaml")) or sorted((ROOT / "recipes").glob("*.yaml"))
    for number in range(300):
        source = sources[number % len(sources)]
        text = source.read_text().replace("\nname: ", f"\nname: n{number} ", 1)
        (folder / f"{number}.yaml").write_text(text)
    began = time.perf_counter()
    subprocess.run([command, "check", str(folder)], check=False, capture_output=True)
    return time.perf_counter() - began, f"{len(sources)} recipes, repeated"


def compare_corpus() -> tuple[int, int, int]:
    """How many corpus files load; of all renderings, how many have the argv of the format's own
    runner, and how many there are.
    """
    loaded = same = wanted = 0
    for path in FILES:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        recipe = load_recipe(path)
        loaded += 1
        counts_machines = recipe.form is Form.VERSION_1
        modes = [] if data.get("cluster_only") and not counts_machines else ["solo"]
        modes += [] if data.get("solo_only") else ["cluster", "ray"]
        for mode in modes:
            nodes = Nodes() if mode == "solo" else Nodes(MACHINES, ray=mode == "ray")
            ours = bash_words(our_command(path, {}, nodes=nodes)[0])
            theirs = bash_words(upstream_command(data, {}, "", mode))
            tail = ours[len(theirs) :]
            wanted += 1
            same += ours[: len(theirs)] == theirs and (not tail or tail[0] == "--nnodes")
    return loaded, same, wanted


def read_mutated(count: int = COUNT) -> tuple[float, float, int]:
    """The slowest file in seconds, the largest in MiB, and how many gave no finding at all.

    Raises:
        subprocess.CalledProcessError: one of them ended in a traceback.
    """
    stream = random.Random(20)
    slowest = largest = 0.0
    clean = 0
    for _ in range(count // BATCH):
        with tempfile.TemporaryDirectory() as folder:
            for number in range(BATCH):
                text = mutate(stream.choice(SEEDS), stream)
                raw = text.encode("utf-8", "surrogatepass")
                if stream.random() < 0.1:  # bytes that are no UTF-8
                    at = stream.randrange(len(raw) + 1)
                    raw = raw[:at] + stream.randbytes(3) + raw[at:]
                (Path(folder) / f"{number}.yaml").write_bytes(raw)
            line = [sys.executable, "-m", "tests.bench.recipes", folder]
            done = subprocess.run(line, check=True, capture_output=True, text=True, cwd=ROOT)
        answer = json.loads(done.stdout)
        slowest = max(slowest, answer["slowest_s"])
        largest = max(largest, answer["largest_mib"])
        clean += answer["clean"]
    return slowest, largest, clean


def _read_folder(folder: Path) -> dict[str, float]:
    slowest = largest = 0.0
    clean = 0
    load_recipe(ROOT / "recipes/nemotron-omni.yaml")  # what every process has to load once
    for path in folder.iterdir():
        before = _memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        began = time.perf_counter()
        try:
            clean += not check_recipe(load_recipe(path))
        except InvalidRecipe as error:
            if not error.findings:
                raise
        slowest = max(slowest, time.perf_counter() - began)
        largest = max(largest, _memory("VmHWM") - before)
    return {"slowest_s": slowest, "largest_mib": largest, "clean": clean}


def _memory(field: str) -> float:
    for row in Path("/proc/self/status").read_text().splitlines():
        if row.startswith(f"{field}:"):
            return int(row.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    print(json.dumps(_read_folder(Path(sys.argv[1]))))
