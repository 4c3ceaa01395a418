"""Several recipes on one GPU: the utilisations with which they fit beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from spark_vllm_docker.plan.memory import needed_share
from spark_vllm_docker.plan.report import PlanReport

SYSTEM_GIB = 8.0
"""What the operating system keeps on a machine whose GPU shares the CPU's memory."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """`asked` are the recipes' own utilisations, `needed` those with which one request of the full
    length fits in each; `usable` is the share of the GPU that there is for all.
    """

    names: tuple[str, ...]
    asked: tuple[float, ...]
    needed: tuple[float, ...]
    usable: float
    unplanned: str = ""

    @property
    def fits(self) -> bool:
        """As the recipes are written."""
        return not self.unplanned and sum(self.asked) <= self.usable + 1e-9

    @property
    def could_fit(self) -> bool:
        """With the utilisations of `proposed`."""
        return not self.unplanned and sum(self.needed) <= self.usable + 1e-9

    @property
    def proposed(self) -> tuple[float, ...]:
        """The needed shares, and what is left over in their proportion, cut to 0.01."""
        spare = max(0.0, self.usable - sum(self.needed))
        whole = sum(self.needed) or 1.0
        return tuple(
            floor((share + spare * share / whole) * 100 + 1e-6) / 100 for share in self.needed
        )

    def rows(self) -> list[tuple[str, str]]:
        """The verdict as text."""
        both = " and ".join(self.names)
        if self.unplanned:
            return [("together", f"not planned: {self.unplanned}")]
        asked = " + ".join(f"{share:g}" for share in self.asked)
        if self.fits:
            return [("together", f"{both} fit: {asked} of {self.usable:.2f} usable")]
        rows = [("together", f"{both} do not fit: {asked} is more than {self.usable:.2f} usable")]
        if self.could_fit:
            proposed = zip(self.names, self.proposed, strict=True)
            words = "; ".join(
                f"{name} --gpu-memory-utilization {share:g}" for name, share in proposed
            )
            rows.append(("they fit with", words))
        else:
            needed = " + ".join(f"{share:.2f}" for share in self.needed)
            rows.append(("they need", f"{needed}: a smaller max-model-len, or another checkpoint"))
        return rows

    def to_json(self) -> dict[str, object]:
        """The verdict as data."""
        return {
            "recipes": list(self.names),
            "asked": list(self.asked),
            "needed": list(self.needed),
            "usable": self.usable,
            "fits": self.fits,
            "proposed": list(self.proposed) if self.could_fit else None,
            "unplanned": self.unplanned or None,
        }


def share_gpu(plans: Sequence[PlanReport]) -> Sharing:
    """Whether recipes fit on one GPU; all were planned for the same hardware."""
    names = tuple(plan.recipe.name for plan in plans)
    hardware = plans[0].surroundings.hardware
    asked, needed = [], []
    for plan in plans:
        shape, settings = plan.surroundings.shape, plan.settings
        if hardware is None or shape is None or settings is None or plan.memory is None:
            return Sharing(names, (), (), 0.0, _why(plan))
        asked.append(settings.utilization)
        share = needed_share(shape, settings, hardware, multimodal=plan.multimodal, requests=1)
        needed.append(round(share, 2))
    assert hardware is not None  # noqa: S101 - there is a memory plan
    kept = SYSTEM_GIB if hardware.unified else 0.5
    usable = floor((1 - kept / hardware.total_gib) * 100) / 100
    return Sharing(names, tuple(asked), tuple(needed), usable)


def _why(plan: PlanReport) -> str:
    if plan.surroundings.hardware is None:
        return "the hardware is not known: --hardware says which"
    unplanned = plan.surroundings.unplanned or "the size of its weights is not known"
    return f"{plan.recipe.name}: {unplanned}"
