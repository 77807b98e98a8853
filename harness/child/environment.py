"""Says what the target's interpreter has: `python -m … DEVICE` prints one JSON object."""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from typing import Any

LIBRARIES = ("torch", "peft", "transformers", "bitsandbytes", "pytest")


def versions() -> dict[str, str]:
    """The versions of Python and of the libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def device(name: str) -> dict[str, Any]:
    """`reason`, empty if the device is there, and `device_name`."""
    if name == "cpu":
        return {"reason": "", "device_name": ""}
    try:
        import torch
    except ImportError as error:
        return {"reason": f"torch can't be imported: {error}", "device_name": ""}
    if not torch.cuda.is_available():
        build = torch.version.cuda or torch.version.hip
        why = "torch sees no CUDA device" if build else f"torch {torch.__version__} is built without CUDA"
        return {"reason": why, "device_name": ""}
    return {"reason": "", "device_name": torch.cuda.get_device_name(0)}


if __name__ == "__main__":
    print(json.dumps({"versions": versions(), **device(sys.argv[1])}))
