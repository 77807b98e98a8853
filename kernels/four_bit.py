"""bitsandbytes' 4-bit layers for sample models, in interpreters that may lack the library.

The reference kernels need bitsandbytes. A target's interpreter need not have it: then dense samples are all there is,
and a 4-bit one says why not.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from fastlora_verify.kernels.missing import MissingLibraryError

__all__ = ["Linear4bit", "dequantize_4bit"]

try:
    from bitsandbytes.functional import dequantize_4bit
    from bitsandbytes.nn import Linear4bit
except ImportError:

    class Linear4bit(nn.Linear):  # type: ignore[no-redef]
        """Stands for the class in `isinstance`; there are no instances."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            raise MissingLibraryError("bitsandbytes is not installed")

    def dequantize_4bit(*args: Any, **kwargs: Any) -> Any:
        """Without layers there is nothing to dequantise."""
        raise MissingLibraryError("bitsandbytes is not installed")
