"""Who may ask: keys, and the models that each may use."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from spark_vllm_docker.errors import Refused, say_reason

SHORTEST_KEY = 8


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody with a key. No `models` means all."""

    name: str
    key: str
    models: frozenset[str] = frozenset()

    def may_use(self, model: str) -> bool:
        """Whether a model is theirs to use."""
        return not self.models or model in self.models


def read_tenants(path: Path) -> tuple[Tenant, ...]:
    """A YAML file: `tenants: {NAME: {key: …, models: [...]}}`.

    Raises:
        Refused: it cannot be read, or is of another form; the message says where.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refused(f"{path}: {say_reason(error)}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Refused(f"{path} is no YAML: {str(error).splitlines()[0]}") from error
    entries = data.get("tenants") if isinstance(data, dict) else None
    if not isinstance(entries, dict) or not entries:
        raise Refused(f"{path}: expected tenants: {{NAME: {{key: …}}}}")
    tenants = tuple(_read(path, str(name), entry) for name, entry in entries.items())
    if len({tenant.key for tenant in tenants}) < len(tenants):
        raise Refused(f"{path}: two tenants have the same key")
    return tenants


def find_tenant(tenants: tuple[Tenant, ...], authorization: str) -> Tenant | None:
    """By `Authorization: Bearer KEY`; all keys are compared, in constant time."""
    scheme, _, key = authorization.partition(" ")
    found = None
    for tenant in tenants:
        given = key.strip().encode("latin-1", "replace")  # header values are bytes
        same = hmac.compare_digest(tenant.key.encode(), given)
        found = tenant if same and scheme.lower() == "bearer" else found
    return found


def _read(path: Path, name: str, entry: Any) -> Tenant:
    where = f"{path}: tenants.{name}"
    if not isinstance(entry, dict) or not set(entry) <= {"key", "models"}:
        raise Refused(f"{where}: expected key and models")
    key, models = entry.get("key"), entry.get("models") or []
    if not isinstance(key, str) or len(key) < SHORTEST_KEY:
        raise Refused(f"{where}.key: expected a text of at least {SHORTEST_KEY} letters")
    if not isinstance(models, list) or not all(isinstance(model, str) for model in models):
        raise Refused(f"{where}.models: expected a list of names")
    return Tenant(name, key, frozenset(models))
