"""Says what the target's interpreter has: `python -m … DEVICE` prints one JSON object."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

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


def installed() -> dict[str, Any]:
    """`installed`, a digest of the interpreter, of every distribution's list of files, their hashes included, and of
    the libraries' files as they lie; and `editable`, the folders of those that are run from where they are edited.
    """
    total = hashlib.sha256(f"{sys.version} {platform.machine()}".encode())
    editable = []
    for folder in _distributions():
        try:
            origin = json.loads((folder / "direct_url.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            origin = {}
        own = folder.name.startswith("fastlora_verify-")  # what of it runs there is the caller's, by content
        if origin.get("dir_info", {}).get("editable"):
            editable += [] if own else [unquote(urlsplit(origin["url"]).path)]
        if not own:
            total.update(folder.name.encode() + b"\0" + _content(folder))
    for line in _as_they_lie():
        total.update(line.encode("utf-8", "surrogateescape"))
    return {"installed": total.hexdigest(), "editable": editable}


def _as_they_lie() -> Iterator[str]:
    """Path, size and time of the libraries' files: an edit in place leaves their lists of files as they were."""
    tops = [Path(entry, name) for entry in sys.path for name in LIBRARIES if Path(entry, name).is_dir()]
    waiting = [str(top) for top in tops]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if entry.is_dir(follow_symlinks=False):
                    waiting += [] if entry.name == "__pycache__" else [entry.path]
                elif entry.name.endswith((".py", ".so", ".pth")):
                    info = entry.stat(follow_symlinks=False)
                    yield f"{entry.path} {info.st_size} {info.st_mtime_ns}\n"


def _distributions() -> Iterator[Path]:
    for entry in sys.path:
        with_metadata = (".dist-info", ".egg-info")
        names = sorted(os.listdir(entry)) if os.path.isdir(entry) else []
        yield from (Path(entry, name) for name in names if name.endswith(with_metadata))


def _content(folder: Path) -> bytes:
    for name in ("RECORD", "PKG-INFO"):
        if (folder / name).is_file():
            return (folder / name).read_bytes()
    return b""


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
    print(json.dumps({"versions": versions(), **installed(), **device(sys.argv[1])}))
