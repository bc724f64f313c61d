from dataclasses import replace

import pytest
import torch

from slimreid.data.batches import ModalBatch
from slimreid.errors import DataError


def make(B=2, names=("rgb", "tir"), **changes):
    numbers = torch.arange(B)
    fields = {
        "images": {name: torch.rand(B, 3, 8, 4) for name in names},
        "present": torch.ones(B, len(names), dtype=torch.bool),
        "identity": numbers,
        "camera": numbers,
        "index": numbers,
        "paths": ({},) * B,
    }
    return ModalBatch(**(fields | changes))


def test_length_and_names():
    batch = make(3)
    assert len(batch) == 3
    assert batch.modalities == ("rgb", "tir")
    assert len(make(0)) == 0


def test_to_moves_every_tensor_and_keeps_the_rest():
    moved = make(dropped=((4, "broken"),)).to("meta")
    tensors = [*moved.images.values(), moved.present, moved.identity, moved.camera, moved.index]
    assert {t.device.type for t in tensors} == {"meta"}
    assert moved.dropped == ((4, "broken"),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": {}}, "at least one modality"),
        ({"images": {"rgb": torch.rand(2, 1, 8, 4)}}, "'rgb' must be float"),
        ({"images": {"rgb": torch.zeros(2, 3, 8, 4, dtype=torch.uint8)}}, "uint8"),
        ({"images": {"rgb": torch.rand(2, 3, 8, 4), "tir": torch.rand(2, 3, 4, 8)}}, "'tir' are"),
        ({"present": torch.ones(2, 3, dtype=torch.bool)}, "present must be bool"),
        ({"present": torch.ones(2, 2)}, "present must be bool"),
        ({"present": torch.tensor([[True, True], [False, False]])}, "sample 1 .* no modality"),
        ({"camera": torch.zeros(3, dtype=torch.int64)}, "camera must be int64"),
        ({"identity": torch.zeros(2)}, "identity must be int64"),
        ({"paths": ()}, "paths has 0 entries"),
    ],
)
def test_faults_are_named(changes, message):
    with pytest.raises(DataError, match=message):
        make(**changes)


def test_replace_validates_again():
    with pytest.raises(DataError):
        replace(make(), index=torch.zeros(5, dtype=torch.int64))
