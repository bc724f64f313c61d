"""Images in any form a program has them in, as the 8-bit RGB arrays that files are decoded to.

| given                                  | taken as                                                        |
|----------------------------------------|-----------------------------------------------------------------|
| path                                   | decoded as in a dataset                                         |
| `ImageRef`                             | the same, cut to its box and with its window                    |
| PIL image                              | as if it came from a file                                       |
| uint8 array (H, W), (H, W, 1, 3 or 4)  | grey, colour, or colour with an alpha channel that is left out  |
| float array within [0, 1]              | the same, in shares of 255                                      |
| (H, W) of 16 bits or other values      | deep values (heat): window, or 1st to 99th percentile           |
| tensor (H, W) or (1, 3 or 4, H, W)     | as the array with channels last                                 |

A window (`data.windows` of the model's run) is applied to whatever comes, as it is to files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
from PIL import Image

from slimreid.arrays import Pixels
from slimreid.data.images.decode import apply_window, image_pixels, read_image
from slimreid.data.manifest import ImageRef, Window
from slimreid.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

ImageLike: TypeAlias = "str | Path | ImageRef | Image.Image | npt.NDArray[Any] | Tensor"

_CHANNELS = (1, 3, 4)


def as_pixels(
    image: ImageLike, window: Window | None = None, at_least: tuple[int, int] | None = None
) -> Pixels:
    """Any form of image as (H, W, 3) uint8; `at_least` as in `read_image`, for paths.

    Raises `DataError` saying what is wrong with it.
    """
    if isinstance(image, (str, Path)):
        return read_image(Path(image), None, window, at_least)
    if isinstance(image, ImageRef):
        return read_image(Path(image.path), image.box, image.window or window, at_least)
    try:
        if isinstance(image, Image.Image):
            return image_pixels(image, window)
        if is_tensor(image):
            return _from_array(_channels_last(image), window)
        if isinstance(image, np.ndarray):
            return _from_array(image, window)
    except ValueError as error:
        raise DataError(str(error)) from None
    raise DataError(f"a {type(image).__name__} is not an image; give a path, PIL image, array or tensor")


def is_tensor(image: object) -> TypeGuard[Tensor]:
    """Whether an object is a tensor of torch, which is not imported for the question."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(image, torch.Tensor)


def _channels_last(image: Tensor) -> npt.NDArray[Any]:
    array = image.detach().cpu()
    if array.is_floating_point():
        array = array.float()  # numpy does not know bfloat16
    if array.ndim == 3:
        if array.shape[0] not in _CHANNELS:
            raise ValueError(f"a tensor must be (3, H, W) or (H, W), not {tuple(array.shape)}")
        array = array.permute(1, 2, 0)
    return array.numpy()


def _from_array(array: npt.NDArray[Any], window: Window | None) -> Pixels:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in _CHANNELS) or 0 in array.shape:
        raise ValueError(f"an array must be (H, W, 3) or (H, W), not {array.shape}")
    kind = array.dtype.kind
    if array.dtype == np.uint8:
        return image_pixels(Image.fromarray(np.ascontiguousarray(array)), window)
    if kind not in "iuf":
        raise ValueError(f"{array.dtype} is no type of pixels; use uint8, 16 bits, or float in [0, 1]")
    shares = kind == "f" and bool(((array >= 0) & (array <= 1)).all())
    if shares and window is None:
        grey: Pixels = np.rint(array * 255.0).astype(np.uint8)
        return image_pixels(Image.fromarray(grey))
    if array.ndim == 3:
        raise ValueError(
            f"colours must be uint8 or float in [0, 1], not {array.dtype} from {array.min()} to {array.max()}"
        )
    return np.repeat(apply_window(array.astype(np.float32), window)[..., None], 3, axis=-1)
