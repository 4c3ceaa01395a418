"""The image of a recipe, as far as an engine and its registry have told."""

from __future__ import annotations

from dataclasses import dataclass

from spark_vllm_docker.catalog.hardware import Hardware
from spark_vllm_docker.findings import Finding, Severity
from spark_vllm_docker.recipe.recipe import Recipe

_NEEDED_GIB = 25.0
"""What a stock vLLM image takes when it is unpacked, for one that is not here yet."""


@dataclass(frozen=True, slots=True)
class ImageView:
    """What is known of an image.

    `architectures` are what it is made for: of the image here, else of the registry, empty when not
    told. `vllm` and `modules` are read from inside; `modules` is None where that was not done.
    `registry_has` is None where that cannot be told. `buildable` is for images that spark-recipe
    builds.
    """

    reference: str
    present: bool
    architectures: tuple[str, ...] = ()
    registry_has: bool | None = None
    buildable: bool = False
    size_gib: float = 0.0
    entrypoint: tuple[str, ...] = ()
    vllm: str = ""
    modules: frozenset[str] | None = None
    free_gib: float | None = None

    def rows(self) -> list[tuple[str, str]]:
        """As text."""
        made_for = ", ".join(self.architectures)
        if not self.present:
            told = {True: "in its registry", False: "nowhere", None: "not here"}[self.registry_has]
            where = "will be built" if self.buildable else told
            return [("image", f"{where}{f', for {made_for}' if made_for else ''}")]
        inside = f"vLLM {self.vllm}" if self.vllm else "no vLLM that its Python knows of"
        extras = f", with {', '.join(sorted(self.modules))}" if self.modules else ""
        start = f", entrypoint {' '.join(self.entrypoint)}" if self.entrypoint else ""
        return [("image", f"here: {made_for}, {self.size_gib:.1f} GiB, {inside}{extras}{start}")]


def check_image(recipe: Recipe, image: ImageView, hardware: Hardware | None) -> list[Finding]:
    """What keeps this image from starting here."""
    where = recipe.source.where(("container",), value=True)
    findings = []
    if not image.present and image.registry_has is False and not image.buildable:
        message = f"{image.reference} is not on the engine, and its registry does not give it"
        findings.append(Finding("IMG001", Severity.ERROR, message, where, "check name and tag"))
    wanted = hardware.architecture if hardware else ""
    if hardware and wanted and image.architectures and wanted not in image.architectures:
        made_for = ", ".join(image.architectures)
        message = f"{image.reference} is made for {made_for}, and {hardware.name} is {wanted}"
        findings.append(Finding("IMG002", Severity.ERROR, message, where, f"an image for {wanted}"))
    if not image.present and image.free_gib is not None and image.free_gib < _NEEDED_GIB:
        message = f"{image.free_gib:.0f} GiB are free, and an image takes {_NEEDED_GIB:.0f}"
        findings.append(Finding("IMG003", Severity.WARNING, message, where, "docker system prune"))
    if image.present and image.modules is not None and not image.vllm:
        message = f"{image.reference} has no vLLM that its Python knows of"
        findings.append(Finding("IMG004", Severity.WARNING, message, where))
    return findings
