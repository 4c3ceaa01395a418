"""What the planner says of whole recipes, and that what it proposes works."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_vllm_docker.catalog.hardware import load_hardware
from spark_vllm_docker.catalog.hardware_names import HARDWARE
from spark_vllm_docker.catalog.incompatibilities import load_incompatibilities
from spark_vllm_docker.catalog.layers import UnknownShape
from spark_vllm_docker.catalog.model_shapes import (
    find_known_shape,
    load_known_models,
    read_shape,
)
from spark_vllm_docker.findings import Severity
from spark_vllm_docker.plan.compatibility import _CONDITIONS
from spark_vllm_docker.plan.image import ImageView
from spark_vllm_docker.plan.report import PlanReport, Surroundings, build_plan
from spark_vllm_docker.plan.sharing import share_gpu
from spark_vllm_docker.plan.video import Video
from spark_vllm_docker.plan.video_plan import plan_video, read_video_settings, sweep_videos
from spark_vllm_docker.recipe.load import load_recipe, parse_recipe
from spark_vllm_docker.recipe.lookup import find_recipe
from tests.conftest import ROOT

OMNI = "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-NVFP4"


def plan(
    text: str,
    model: str = OMNI,
    hardware: str = "dgx-spark",
    image: str = "vllm/vllm-openai:v0.20.0",
    free: float | None = None,
) -> PlanReport:
    recipe = parse_recipe(f"model: {model}\ncontainer: {image}\n{text}", Path("a.yaml"))
    shape = find_known_shape(model)
    surroundings = Surroundings(load_hardware().get(hardware), shape, "", free)
    return build_plan(recipe, recipe.command.text, surroundings)


def codes(report: PlanReport) -> list[str]:
    return [finding.code for finding in report.findings]


ALIGN = "serve: {enable-prefix-caching: true, max-model-len: 65536, kv-cache-dtype: fp8"


def test_the_trap_of_the_article_is_said_before_the_start() -> None:
    report = plan(ALIGN + ", gpu-memory-utilization: 0.8}\n")
    (finding,) = report.errors
    assert finding.code == "MAMBA001"
    assert finding.message == (
        "In Mamba cache align mode, block_size (2128) must be <= max_num_batched_tokens (2048, by "
        "default) (a GB10 reports no memory through NVML, and vLLM takes its small default)"
    )
    assert finding.fix == "--max-num-batched-tokens 2128"
    assert report.fixes == (("--max-num-batched-tokens", "2128"),)
    assert str(finding.where) == "a.yaml:3:1"


@pytest.mark.parametrize(
    ("version", "hardware", "budget", "code"),
    [
        ("0.20.0", "h100", "", None),
        ("0.20.0", "a100", "", "MAMBA001"),
        ("0.24.0", "dgx-spark", "", "MAMBA001"),
        ("0.16.0", "dgx-spark", "", "MAMBA002"),
        ("0.32.0", "dgx-spark", "", None),
        ("0.20.0", "h100", ", max-num-batched-tokens: 2048", "MAMBA001"),
        ("0.20.0", "dgx-spark", ", max-num-batched-tokens: 2128", None),
        ("0.20.0", "dgx-spark", ", max-num-batched-tokens: 8192", None),
    ],
)
def test_where_the_block_must_fit(
    version: str, hardware: str, budget: str, code: str | None
) -> None:
    text = f"{ALIGN}{budget}, gpu-memory-utilization: 0.8}}\n"
    report = plan(text, hardware=hardware, image=f"vllm/vllm-openai:v{version}")
    assert [c for c in codes(report) if c.startswith("MAMBA")] == ([code] if code else [])


def test_a_default_of_unknown_hardware_is_only_a_warning() -> None:
    report = plan(ALIGN + "}\n", hardware="")
    (finding,) = [f for f in report.findings if f.code == "MAMBA001"]
    assert finding.severity is Severity.WARNING
    assert "the hardware is not known" in finding.message
    given = plan(ALIGN + ", max-num-batched-tokens: 2048}\n", hardware="")
    assert [f.code for f in given.errors] == ["MAMBA001"]


def test_the_fix_is_the_smallest_multiple_of_the_block() -> None:
    report = plan(
        ALIGN + ", max-num-batched-tokens: 5000, mamba-ssm-cache-dtype: float32}\n",
        image="i/vllm:v0.20.0",
    )
    assert report.block_tokens == 4176
    assert report.fixes == ()
    small = plan(ALIGN + ", max-num-batched-tokens: 4000, mamba-ssm-cache-dtype: float32}\n")
    assert small.fixes == (("--max-num-batched-tokens", "4176"),)


def test_every_shipped_recipe_plans_clean_on_its_hardware() -> None:
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        keys = load_recipe(path).keys
        for hardware in keys.hardware:
            recipe = load_recipe(path, hardware)
            shape = find_known_shape(recipe.keys.model or "")
            report = build_plan(
                recipe, recipe.command.text, Surroundings(load_hardware()[hardware], shape)
            )
            bad = [f for f in report.findings if f.severity is not Severity.NOTE]
            assert bad == [], (path.stem, hardware)
            assert report.settings is not None, (path.stem, hardware)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("serve: {tensor-parallel-size: 3}\n", "TP001"),
        ("serve: {max-model-len: 1000000}\n", "CTX001"),
        ("serve: {gpu-memory-utilization: 0.1}\n", "MEM004"),
        ("serve: {gpu-memory-utilization: 0.17, max-model-len: 262144}\n", "MEM001"),
        ("serve: {gpu-memory-utilization: 1.5}\n", "PLAN001"),
        ("serve: {max-num-seqs: many}\n", "PLAN001"),
        ("serve: {speculative-config: {num_speculative_tokens: -1}}\n", "PLAN001"),
        ("serve: {kv-cache-dtype: nvfp4}\n", "PLAN001"),
    ],
)
def test_bad_settings_are_findings(text: str, code: str) -> None:
    assert code in codes(plan(text))


def test_memory_that_is_not_free_is_said() -> None:
    report = plan("serve: {gpu-memory-utilization: 0.8}\n", free=60.0)
    (finding,) = [f for f in report.findings if f.code == "MEM003"]
    assert finding.message == (
        "--gpu-memory-utilization 0.8 asks for 97.4 of 121.7 GiB, and 60.0 GiB are free now"
    )
    assert finding.fix.endswith("--gpu-memory-utilization 0.49")
    assert "MEM003" not in codes(plan("serve: {gpu-memory-utilization: 0.4}\n", free=60.0))


@given(
    model=st.sampled_from(
        [m for m, entry in load_known_models().items() if entry.get("weights_gib", 0) > 1]
    ),
    hardware=st.sampled_from([name for name in HARDWARE if name != "cpu"]),
    utilization=st.integers(10, 95),
    length=st.sampled_from([4096, 65536, 131072, 262144]),
    kv=st.sampled_from(["auto", "fp8", "bfloat16"]),
    caching=st.booleans(),
)
def test_a_proposal_that_is_applied_plans_clean(
    model: str, hardware: str, utilization: int, length: int, kv: str, caching: bool
) -> None:
    shape = find_known_shape(model)
    assert shape is not None
    length = min(length, shape.max_position)
    serve = {
        "gpu-memory-utilization": utilization / 100,
        "max-model-len": length,
        "kv-cache-dtype": kv,
        "max-num-seqs": 4,
        "max-num-batched-tokens": 16_704,
    }
    if caching:
        serve["enable-prefix-caching"] = True
    report = plan(f"serve: {serve}\n".replace("True", "true"), model, hardware)
    for proposal in report.proposals:
        changed = serve | {flag[2:]: value for flag, value in proposal.flags}
        again = plan(f"serve: {changed}\n".replace("True", "true"), model, hardware)
        memory_faults = [f for f in again.findings if f.code in ("MEM001", "MEM002", "MEM004")]
        assert memory_faults == [], (proposal, again.findings)


def test_two_recipes_on_one_machine() -> None:
    plans = []
    for name in ("nemotron-omni", "nemotron-nano"):
        recipe = load_recipe(find_recipe(name), "dgx-spark")
        shape = find_known_shape(recipe.keys.model or "")
        plans.append(
            build_plan(
                recipe, recipe.command.text, Surroundings(load_hardware()["dgx-spark"], shape)
            )
        )
    shared = share_gpu(plans)
    assert not shared.fits
    assert shared.could_fit
    assert sum(shared.proposed) <= shared.usable
    assert all(
        share >= needed for share, needed in zip(shared.proposed, shared.needed, strict=True)
    )
    unknown = share_gpu([plans[0], replace(plans[1], memory=None)])
    assert unknown.rows() == [
        ("together", "not planned: nemotron-nano: the size of its weights is not known")
    ]


def test_videos_of_the_headline_recipe() -> None:
    recipe = load_recipe(find_recipe("nemotron-omni"), "dgx-spark")
    shape = find_known_shape(OMNI)
    report = build_plan(
        recipe, recipe.command.text, Surroundings(load_hardware()["dgx-spark"], shape)
    )
    settings = read_video_settings(report)
    assert settings is not None
    assert (settings.fps, settings.num_frames, settings.pruning) == (2, 512, 0)
    three = plan_video(report, Video(180), settings)
    assert (three.fits, three.parts, three.better) == (True, 1, None)
    ten = plan_video(report, Video(600), settings)
    assert not ten.fits
    assert ten.better is not None
    assert ten.parts == 3
    table = sweep_videos(report, settings)
    assert [one.parts for one in table] == sorted(one.parts for one in table)


def test_conditions_of_known_bad_combinations_are_known() -> None:
    for entry in load_incompatibilities():
        assert set(entry.conditions) <= set(_CONDITIONS)
        assert entry.evidence
        assert entry.fix
        Severity(entry.severity)


@pytest.mark.parametrize(
    ("code", "text", "image", "hardware"),
    [
        ("QUANT001", "serve: {}\n", "vllm-node-tf6-b12x", "dgx-spark"),
        ("QUANT002", "serve: {}\n", "vllm/vllm-openai:v0.16.0", "h100"),
        ("QUANT003", "serve: {}\n", "vllm/vllm-openai:v0.20.0", "a100"),
        ("QUANT004", "serve: {quantization: modelopt_fp4}\n", "vllm/vllm-openai:v0.20.0", "h100"),
        ("MM001", "modalities: [audio]\nserve: {}\n", "vllm/vllm-openai:v0.20.0", "h100"),
        ("MM002", "modalities: [video]\nserve: {}\n", "vllm/vllm-openai:v0.32.0", "h100"),
        (
            "MM003",
            "serve: {mm-processor-kwargs: {use_audio_in_video: true}}\n",
            "vllm/vllm-openai:v0.20.0",
            "h100",
        ),
        (
            "RAY001",
            "serve: {distributed-executor-backend: ray}\n",
            "vllm/vllm-openai:v0.20.0",
            "h100",
        ),
        (
            "GPU001",
            "serve: {attention-backend: FLASH_ATTN, kv-cache-dtype: fp8}\n",
            "vllm/vllm-openai:v0.20.0",
            "dgx-spark",
        ),
        ("ARCH001", "serve: {}\n", "vllm/vllm-openai:v0.19.0", "h100"),
    ],
)
def test_known_bad_combinations_are_found_and_their_opposites_are_not(
    code: str, text: str, image: str, hardware: str
) -> None:
    assert code in codes(plan(text, image=image, hardware=hardware))
    good = "setup: ['pip install vllm[audio]']\nmodalities: [audio]\nserve: {gpu-memory-utilization: 0.8}\n"
    assert code not in codes(plan(good, hardware="h100"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"architectures": []}, "names no architecture"),
        ({"architectures": ["NewForCausalLM"]}, "the architecture NewForCausalLM is not known"),
        ({"num_attention_heads": None}, "has no num_attention_heads"),
        ({"num_attention_heads": -3}, "num_attention_heads of its config.json is -3"),
        ({"num_attention_heads": 10**30}, "num_attention_heads of its config.json is 1000"),
        ({"num_key_value_heads": 3}, "3 key heads do not divide 32"),
        ({"hybrid_override_pattern": None}, "does not say which layer is of which kind"),
        ({"ssm_state_size": "many"}, "ssm_state_size of its config.json is 'many'"),
        ({"mamba_num_heads": True}, "mamba_num_heads of its config.json is True"),
    ],
)
def test_absurd_configs_are_unknown_and_never_guessed(change: dict[str, Any], why: str) -> None:
    known = load_known_models()["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"]["config"]
    with pytest.raises(UnknownShape) as caught:
        read_shape("m", {**known, **change})
    assert why in str(caught.value)


def test_a_model_that_is_not_known_is_not_planned() -> None:
    report = plan("serve: {}\n", model="org/new")
    assert codes(report)[-1] == "PLAN001"
    assert report.memory is None
    assert report.block_tokens == 0


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (
            ImageView(
                "i", present=True, architectures=("amd64",), vllm="0.20.0", modules=frozenset()
            ),
            ["IMG002"],
        ),
        (ImageView("i", present=True, architectures=("arm64",), modules=frozenset()), ["IMG004"]),
        (ImageView("i", present=False, registry_has=False), ["IMG001"]),
        (ImageView("i", present=False, registry_has=None), []),
        (ImageView("i", present=False, registry_has=False, buildable=True), []),
        (ImageView("i", present=False, registry_has=True, architectures=("amd64", "arm64")), []),
        (ImageView("i", present=False, registry_has=True, free_gib=3.0), ["IMG003"]),
    ],
)
def test_what_is_known_of_the_image(image: ImageView, expected: list[str]) -> None:
    recipe = parse_recipe(
        f"model: {OMNI}\ncontainer: i\nserve: {{gpu-memory-utilization: 0.8}}\n", Path("a.yaml")
    )
    spark = load_hardware()["dgx-spark"]
    report = build_plan(
        recipe, recipe.command.text, Surroundings(spark, find_known_shape(OMNI), image=image)
    )
    assert [c for c in codes(report) if c.startswith("IMG")] == expected
    assert image.rows()[0][0] == "image"


def test_what_is_in_the_image_counts_for_more_than_its_name() -> None:
    text = (
        "modalities: [audio, video]\n"
        "serve: {gpu-memory-utilization: 0.8, enable-prefix-caching: true}\n"
    )
    recipe = parse_recipe(f"model: {OMNI}\ncontainer: vllm-node\n{text}", Path("a.yaml"))
    spark = load_hardware()["dgx-spark"]

    def with_image(vllm: str, *modules: str) -> list[str]:
        view = ImageView("vllm-node", present=True, vllm=vllm, modules=frozenset(modules))
        around = Surroundings(spark, find_known_shape(OMNI), image=view)
        return codes(build_plan(recipe, recipe.command.text, around))

    assert with_image("0.20.0", "av", "soundfile") == ["MAMBA001"]
    assert with_image("0.20.0") == ["MM001", "MAMBA001"]
    assert with_image("0.32.0", "av", "soundfile") == ["MM002"]
