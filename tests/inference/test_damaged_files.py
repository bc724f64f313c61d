"""Files that were changed are refused by name, wherever the change is."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from slimreid.errors import DataError, ModelError
from slimreid.inference.embedding_sets.files import read_embeddings, write_embeddings
from slimreid.inference.features.data import open_data
from slimreid.inference.features.embed_data import embed_data
from slimreid.inference.features.extract import Extraction, extract_features
from slimreid.inference.model_card import read_card
from slimreid.inference.trained_model import read_model, write_model
from support.models import write_random_model
from support.runs import write_set


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    manifest = write_set(tmp_path_factory.mktemp("set"), missing=True)
    return write_random_model(tmp_path_factory.mktemp("model"), manifest)


def mutations(content: bytes, number: int, first: int = 0):
    """The content with a flipped bit, a changed digit, a lost or a doubled byte, or its end cut off."""
    rng = np.random.default_rng(0)
    for at in rng.integers(first, len(content), number).tolist():
        kind = int(rng.integers(5))
        flipped = bytes([content[at] ^ (1 << int(rng.integers(8)))])
        other = b"%d" % rng.integers(10)
        middle = [flipped, other, b"", content[at : at + 1] * 2, None][kind]
        changed = content[:at] if middle is None else content[:at] + middle + content[at + 1 :]
        if changed != content:
            yield changed


def header_end(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def test_no_changed_embedding_file_is_read(loaded, tmp_path) -> None:
    found, _ = embed_data(loaded, open_data(loaded))
    path = tmp_path / "f.safetensors"
    write_embeddings(path, found)
    content = path.read_bytes()
    end = header_end(content)
    cases = [*mutations(content, 150), *(head + content[end:] for head in mutations(content[:end], 200))]
    refused: list[str] = []
    for case in cases:
        path.write_bytes(case)
        try:
            again = read_embeddings(path)
        except DataError as error:
            refused.append(str(error))
        else:  # only where nothing that is read has changed, such as a space of the outer header
            assert again.paths == found.paths
            assert (again.identities, again.cameras, again.root) == (
                found.identities,
                found.cameras,
                found.root,
            )
            assert np.array_equal(again.features, found.features)
    assert len(refused) > 0.9 * len(cases)
    assert all(text.startswith(f"{path}: ") for text in refused)


def test_no_changed_model_file_is_read(loaded, tmp_path) -> None:
    state, _ = read_model(loaded.path)
    small = {name: value for name, value in state.items() if value.numel() < 200}
    path = tmp_path / "m.safetensors"
    write_model(path, small, loaded.card, {"both": np.ones((7, 7, 2), np.float32)})
    content = path.read_bytes()
    refused: list[str] = []
    for case in mutations(content, 300):
        path.write_bytes(case)
        try:
            again, header = read_model(path)
            card, _ = read_card(path)
        except ModelError as error:
            refused.append(str(error))
        else:
            assert card == loaded.card
            assert all(torch.equal(again[name], small[name]) for name in small)
            assert (header["impostors"]["both"] == 1).all()
    assert len(refused) > 250
    assert all(text.startswith(f"{path}: ") for text in refused)


def test_feature_files_of_two_subsets_that_were_swapped_are_noticed(loaded, tmp_path, caplog) -> None:
    subsets = [("rgb",), ("nir",)]
    options = Extraction(cache=tmp_path)
    fresh = extract_features(loaded, open_data(loaded), subsets, options)
    first, second = (tmp_path / f"features-{letter}.safetensors" for letter in "rn")
    shutil.move(first, tmp_path / "aside")
    shutil.move(second, first)
    shutil.move(tmp_path / "aside", second)
    again = extract_features(loaded, open_data(loaded), subsets, options)
    assert "features-r.safetensors: cannot be used (it holds nir)" in caplog.text
    for subset in subsets:
        assert np.array_equal(again[subset].get("both"), fresh[subset].get("both"))
