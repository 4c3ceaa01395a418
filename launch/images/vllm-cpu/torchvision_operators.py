"""Let a torchvision that was built for CUDA be imported beside a CPU build of torch.

The compiled operators of such a build do not load, and `import torchvision` then fails, because it
registers shapes for two of them ("operator torchvision::nms does not exist"). Resizing, which is
all that the processors of images and videos use, is plain torch. So the two are declared, without
code behind them, just before torchvision is imported. Run in the image while it is built; does
nothing where torchvision imports by itself (the wheels for arm64 are CPU builds).
"""

import importlib.util
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


def imports() -> bool:
    check = [sys.executable, "-c", "import torchvision.transforms.v2"]
    return subprocess.run(check, check=False).returncode == 0  # noqa: S603


def main() -> int:
    if importlib.util.find_spec("torchvision") is None or imports():
        return 0
    packages = Path(sysconfig.get_paths()["purelib"])
    (packages / "declare_torchvision_operators.py").write_text(DECLARING, encoding="utf-8")
    (packages / "declare_torchvision_operators.pth").write_text(
        "import declare_torchvision_operators\n", encoding="utf-8"
    )
    return 0 if imports() else 1


if __name__ == "__main__":
    sys.exit(main())
