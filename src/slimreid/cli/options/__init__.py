"""The options of each command, as dataclasses with one line of help per field; none of this needs torch.

A field without a default is an argument (`slimreid evaluate MODEL`), one with a default an option
(`--batch 32`), a yes/no field a flag (`--rerank`). Contradictions are refused at construction.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

Feature: TypeAlias = Literal["original", "slimmed", "fused", "both"]
Split: TypeAlias = Literal["train", "val", "query", "gallery"]
Protocol: TypeAlias = Literal["camera", "scene", "none"]
Cameras: TypeAlias = Literal["auto", "same", "other"]

REQUIRED: dict[str, Any] = {"required": True}
"""Metadata of a field that must be given by name (`--model RUN`), not by position."""
HIDDEN: dict[str, Any] = {"hidden": True}
"""Metadata of a field that is filled in from elsewhere and has no option of its own."""
STANDS_FOR = "stands_for"
"""Key in the metadata of an option that is given in place of an argument, which it names."""
