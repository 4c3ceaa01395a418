"""Sets of values that argparse does not know: registries and enumerations."""

from __future__ import annotations

import ast

from spark_vllm_docker.catalog.extract.annotations import enum_members, first, read_annotation
from spark_vllm_docker.catalog.extract.tree import Tree
from spark_vllm_docker.catalog.extract.values import UNKNOWN, read_value

_REGISTRIES = {
    "tool_call_parser": ("vllm.tool_parsers", "_TOOL_PARSERS_TO_REGISTER"),
    "reasoning_parser": ("vllm.reasoning", "_REASONING_PARSERS_TO_REGISTER"),
}
_TYPES = {
    "quantization": ("vllm.model_executor.layers.quantization", "QuantizationMethods"),
    "kv_cache_dtype": ("vllm.config.cache", "CacheDType"),
    "mamba_cache_mode": ("vllm.config.cache", "MambaCacheMode"),
    "moe_backend": ("vllm.config.kernel", "MoEBackend"),
    "load_format": ("vllm.model_executor.model_loader", "LoadFormats"),
}
_ENUMS = {
    "attention_backend": ("vllm.v1.attention.backends.registry", "AttentionBackendEnum"),
}


def read_sets(tree: Tree) -> dict[str, list[str]]:
    """The sets by name, sorted; one that the release does not have is left out."""
    found: dict[str, list[str]] = {}
    for name, (dotted, variable) in _REGISTRIES.items():
        module = tree.module(dotted)
        node = module.assigns.get(variable) if module else None
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            found[name] = sorted(str(key) for key in keys)
    for name, (dotted, variable) in _TYPES.items():
        module = tree.module(dotted)
        node = module.assigns.get(variable) if module else None
        if module and node is not None:
            value = read_value(node, module)
            literal = first(read_annotation(node, module), "Literal")
            values = list(literal.detail) if literal else value
            if values is not UNKNOWN:
                found[name] = sorted(str(v) for v in values)
    for name, (dotted, class_name) in _ENUMS.items():
        module = tree.module(dotted)
        definition = module.defs.get(class_name) if module else None
        if isinstance(definition, ast.ClassDef):
            found[name] = sorted(enum_members(definition))
    return found
