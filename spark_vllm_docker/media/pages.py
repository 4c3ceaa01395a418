"""The pages of a PDF as pictures."""

from __future__ import annotations

from pathlib import Path

import pypdfium2

from spark_vllm_docker.errors import BadMedia, say_reason

DPI = 110
MOST_PAGES = 40


def draw_pages(pdf: Path, folder: Path) -> list[Path]:
    """Write each page as a PNG.

    Raises:
        BadMedia: it is damaged, locked, or has more than `MOST_PAGES` pages.
    """
    try:
        with pypdfium2.PdfDocument(pdf) as document:
            if len(document) > MOST_PAGES:
                raise BadMedia(
                    f"{pdf} has {len(document)} pages, and {MOST_PAGES} are the most",
                    hint="take out the pages that the question is about, with qpdf or pdfseparate",
                )
            drawn = []
            for number, page in enumerate(document, start=1):
                target = folder / f"{pdf.stem}-{number:03}.png"
                page.render(scale=DPI / 72).to_pil().save(target)
                drawn.append(target)
            return drawn
    except pypdfium2.PdfiumError as error:
        raise BadMedia(f"{pdf} cannot be read: {error}") from error
    except OSError as error:
        raise BadMedia(f"{pdf}: {say_reason(error)}") from error
