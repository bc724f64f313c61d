"""The manifest: one CSV table that describes any dataset.

| column                 | content                                                                     |
|------------------------|-----------------------------------------------------------------------------|
| `split`                | `train`, `query`, `gallery` or `val` (`val` is query and gallery at once)    |
| `identity`             | who or what it is, any text                                                  |
| `camera`, `scene`      | where it was seen, any text; `scene` may be empty or left out                |
| `rgb`, `nir`, ...      | path of the image, relative to the manifest's folder; empty = missing        |
| `rgb_box`, ...         | optional `left top right bottom` in pixels, for images that share one file   |
| `rgb_window`, ...      | optional `low high` for 16-bit images, the values that become black and white |
| `protocol`             | optional, the same in every row: `camera` (default), `scene` or `none`       |
| `origin`               | optional, the same in every row: what the pixels are, e.g. if simulated      |
| `x_...`                | anything else you want to keep; carried along, never read                    |

Row numbers in messages are those of a spreadsheet: the header is row 1.
"""

from slimreid.data.manifest.rows import (
    GROUP_COLUMN,
    MANIFEST_NAME,
    PROTOCOLS,
    SPLITS,
    TIME_COLUMN,
    Box,
    ImageRef,
    LabelEncoder,
    Manifest,
    Protocol,
    Sample,
    Split,
    Window,
    images_from_json,
    images_to_json,
)
from slimreid.data.manifest.table import find_manifest, parse_manifest, read_manifest, write_manifest

__all__ = [
    "GROUP_COLUMN",
    "MANIFEST_NAME",
    "PROTOCOLS",
    "SPLITS",
    "TIME_COLUMN",
    "Box",
    "ImageRef",
    "LabelEncoder",
    "Manifest",
    "Protocol",
    "Sample",
    "Split",
    "Window",
    "find_manifest",
    "images_from_json",
    "images_to_json",
    "parse_manifest",
    "read_manifest",
    "write_manifest",
]
