"""Images and fields of a `multipart/form-data` body, in memory; no file is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from slimreid.data.images.hashing import bytes_hash
from slimreid.errors import DataError
from slimreid.serve.errors import TooLargeError
from slimreid.serve.settings import RequestLimits

Form = TypeVar("Form", bound=BaseModel)
_NUMBERED = re.compile(r"([a-z_]{1,40})(?:\.(0|[1-9][0-9]{0,3}))?")
_MOST_FIELDS = 1000
_FIELD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Upload:
    """One sample as it was sent."""

    number: int
    images: Mapping[str, bytes]
    """Per modality, the content of a file, in the model's order."""

    @property
    def hash(self) -> str:
        """As a row of the gallery keeps it."""
        return bytes_hash(self.images)


@dataclass(frozen=True)
class Sent:
    """What a body holds."""

    samples: Sequence[Upload]
    fields: Mapping[str, Sequence[str]]
    """Fields that hold for all samples."""
    own: Mapping[int, Mapping[str, str]]
    """Per sample, fields that hold for it alone."""

    def form(self, kind: type[Form], only: int | None = None) -> Form:
        """The fields as a form, with `only` those of one sample; raises pydantic's `ValidationError`."""
        values: dict[str, Any] = {}
        for name, texts in self.fields.items():
            known = kind.model_fields.get(name)
            is_list = known is not None and "list" in str(known.annotation)
            values[name] = list(texts) if is_list or len(texts) > 1 else texts[0]
        if only is not None:
            values |= self.own.get(only, {})
        return kind.model_validate(values)


class _InMemory(MultiPartParser):
    """Keeps whole files in memory: the body was bounded before."""

    spool_max_size = 1 << 40


async def read_upload(request: Request, modalities: Sequence[str], limits: RequestLimits) -> Sent:
    """Read samples and fields from a request; raises `DataError` or `TooLargeError` naming the part."""
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "multipart/form-data":
        raise DataError(f"images are sent as multipart/form-data, not as '{kind[:100]}'")
    parser = _InMemory(
        request.headers,
        request.stream(),
        max_files=limits.images,
        max_fields=_MOST_FIELDS,
        max_part_size=_FIELD_BYTES,
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        kind_of = TooLargeError if "Too many" in error.message or "exceeded" in error.message else DataError
        raise kind_of(f"the body cannot be parsed: {error.message}") from None
    except (KeyError, ValueError, IndexError, AttributeError, LookupError) as error:
        raise DataError(f"the body cannot be parsed ({type(error).__name__})") from None
    return await _sorted_out(form, modalities)


async def _sorted_out(form: FormData, modalities: Sequence[str]) -> Sent:
    images: dict[int, dict[str, bytes]] = {}
    fields: dict[str, list[str]] = {}
    own: dict[int, dict[str, str]] = {}
    for key, value in form.multi_items():
        match = _NUMBERED.fullmatch(key)
        name, number = match.groups() if match else (key, None)
        if isinstance(value, UploadFile):
            if name not in modalities:
                raise DataError(
                    f"an image of '{key[:40]}'; the model knows {', '.join(modalities)}: call the part "
                    f"{modalities[0]}, or {modalities[0]}.1 for a second sample"
                )
            sample = images.setdefault(int(number or 0), {})
            if name in sample:
                raise DataError(f"two images '{key}'; call that of a second sample {name}.1")
            sample[name] = await value.read()
        elif name in modalities:
            raise DataError(f"'{key}' is text; send the file itself")
        elif number is None:
            fields.setdefault(name, []).append(value)
        else:
            own.setdefault(int(number), {})[name] = value
    if stray := sorted(set(own) - set(images)):
        raise DataError(f"there are fields but no image for sample {stray[0]}")
    ordered = [
        Upload(number, {m: images[number][m] for m in modalities if m in images[number]})
        for number in sorted(images)
    ]
    return Sent(ordered, fields, own)
