"""Let torchvision and torchaudio that were built for CUDA be imported beside a CPU build of torch.

The compiled operators of such a build do not load, and `import torchvision` then fails, because it
registers shapes for two of them ("operator torchvision::nms does not exist"). Resizing, which is
all that the processors of images and videos use, is plain torch. So the two are declared, without
code behind them, just before torchvision is imported. torchaudio's compiled part is taken away: it
is optional, and vLLM resamples sound with plain torch. Run in the image while it is built; does
nothing where the two import by themselves (the wheels for arm64 are CPU builds).
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

DECLARING = """
import importlib.abc
import sys


class _BeforeTorchvision(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            self.library = torch.library.Library("torchvision", "FRAGMENT")
            for operator in ("nms", "qnms"):
                self.library.define(
                    f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )
            _kept.append(self)
        return None


_kept = []
sys.meta_path.insert(0, _BeforeTorchvision())
"""


def imports(module: str) -> bool:
    check = [sys.executable, "-c", f"import {module}"]
    return subprocess.run(check, check=False).returncode == 0  # noqa: S603


def main() -> int:
    packages = Path(sysconfig.get_paths()["purelib"])
    if not imports("torchvision.transforms.v2"):
        (packages / "declare_torchvision_operators.py").write_text(DECLARING, encoding="utf-8")
        (packages / "declare_torchvision_operators.pth").write_text(
            "import declare_torchvision_operators\n", encoding="utf-8"
        )
    if not imports("torchaudio"):
        for library in (packages / "torchaudio/lib").glob("*.so"):
            library.unlink()
    return 0 if imports("torchvision.transforms.v2") and imports("torchaudio") else 1


if __name__ == "__main__":
    sys.exit(main())
