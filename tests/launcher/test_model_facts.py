"""What is known of a model on this machine."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from spark_vllm_docker.catalog.hardware import load_hardware
from spark_vllm_docker.catalog.model_shapes import load_known_models
from spark_vllm_docker.launcher.free_memory import find_free_gib
from spark_vllm_docker.launcher.model_facts import find_model_shape
from spark_vllm_docker.launcher.weights import find_weights

NANO = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
CONFIG = load_known_models()[NANO]["config"]


def snapshot(home: Path, model: str) -> Path:
    folder = home / f"hub/models--{model.replace('/', '--')}/snapshots/abc"
    folder.mkdir(parents=True)
    return folder


def test_the_cache_comes_before_the_catalogue(tmp_path: Path) -> None:
    folder = snapshot(tmp_path, NANO)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_key_value_heads": 4}))
    index = {"metadata": {"total_size": 10 << 30}, "weight_map": {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    shape, why = find_model_shape(NANO, {"HF_HOME": str(tmp_path)})
    assert (why, shape is not None) == ("", True)
    assert shape is not None
    assert (shape.kv_heads, shape.weights_gib, shape.source) == (4, 10.0, str(folder))


def test_sizes_come_from_files_where_there_is_no_index(tmp_path: Path) -> None:
    folder = snapshot(tmp_path, "org/m")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    with (folder / "a.safetensors").open("wb") as file:
        file.truncate(3 << 30)
    shape, _ = find_model_shape("org/m", {"HF_HOME": str(tmp_path)})
    assert shape is not None
    assert shape.weights_gib == 3.0


def test_a_folder_and_the_catalogue(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    shape, _ = find_model_shape(str(tmp_path), {})
    assert shape is not None
    shape, _ = find_model_shape(NANO, {"HF_HOME": str(tmp_path)})
    assert shape is not None
    assert shape.source.startswith("public config.json")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "its config.json is not JSON"),
        ("[]", "its config.json is no mapping"),
        ("{}", "its config.json names no architecture"),
        ("\xff", "its config.json is not JSON"),
        ("[" * 100_000, "its config.json is not JSON"),
    ],
)
def test_a_broken_config_is_a_reason(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    shape, told = find_model_shape(str(tmp_path), {})
    assert shape is None
    assert why in told


def test_what_is_nowhere_says_how_to_ask(tmp_path: Path) -> None:
    shape, why = find_model_shape("org/new", {"HF_HOME": str(tmp_path)})
    assert shape is None
    assert "--hub reads its config.json there" in why
    asked = find_model_shape(
        "org/new", {"HF_HOME": str(tmp_path)}, lambda _: json.dumps(CONFIG).encode()
    )
    assert asked[0] is not None
    assert find_model_shape(str(tmp_path / "none"), {})[0] is None
    assert find_model_shape("", {})[1] == "the command names no model"


def test_free_memory_is_the_kernels_word_where_gpu_and_cpu_share_it(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 1 kB\nMemAvailable:   104857600 kB\n")
    spark = load_hardware()["dgx-spark"]
    assert find_free_gib(spark, here=True, meminfo=meminfo) == 100.0
    assert find_free_gib(spark, here=False, meminfo=meminfo) is None
    assert find_free_gib(load_hardware()["h100"], here=True, meminfo=meminfo) is None
    assert find_free_gib(spark, here=True, meminfo=tmp_path / "none") is None


def write_safetensors(path: Path, tensors: dict[str, int]) -> None:
    """A file with a real header and, as in a download that goes on, without its tensors."""
    header, at = {}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw)


def test_the_headers_of_the_files_are_read_and_not_their_tensors(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    write_safetensors(tmp_path / "a.safetensors", {"x": 1 << 30, "y": 1 << 30})
    write_safetensors(tmp_path / "b.safetensors", {"z": 1 << 30})
    shape, _ = find_model_shape(str(tmp_path), {})
    assert shape is not None
    assert (shape.weights_gib, shape.weights_from) == (3.0, "the headers of its files")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 7,
        b"\xff" * 64,
        struct.pack("<Q", 4) + b"[[[[",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 20) + b'{"a": {"b": "c"}}   ',
        struct.pack("<Q", 40) + b'{"a": {"data_offsets": [0, "x"]}}       ',
    ],
)
def test_a_broken_header_counts_as_the_file_that_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    size, source = find_weights(tmp_path)
    assert (size, source) == (len(content), "the size of its files" if content else "")


@pytest.mark.parametrize(
    "index", ["{", "[]", '{"metadata": 1}', '{"metadata": {"total_size": -1}}']
)
def test_a_broken_index_is_passed_over(tmp_path: Path, index: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    write_safetensors(tmp_path / "a.safetensors", {"x": 5})
    assert find_weights(tmp_path) == (5, "the headers of its files")


def test_weights_that_nothing_tells_are_counted_where_the_layers_are_known(tmp_path: Path) -> None:
    config = {
        "architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 1024,
        "intermediate_size": 3072, "num_hidden_layers": 28, "head_dim": 128, "vocab_size": 151936,
        "num_attention_heads": 16, "num_key_value_heads": 8, "tie_word_embeddings": True,
        "max_position_embeddings": 40960,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape, _ = find_model_shape(str(tmp_path), {})
    assert shape is not None
    assert shape.weights_gib == pytest.approx(596_049_920 * 2 / (1 << 30))
    assert shape.weights_from == "parameters x bfloat16"
