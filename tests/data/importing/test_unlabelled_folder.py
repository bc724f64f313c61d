"""Folders of images without a manifest."""

import os

import pytest

from slimreid.data.importing.unlabelled_folder import open_folder, read_unlabelled
from slimreid.errors import ConfigError, DataError
from support.files import write_image

NAMES = ("rgb", "nir", "tir")


def images(manifest):
    return [{m: i.path for m, i in s.images.items()} for s in manifest.samples]


def test_photos_are_samples_of_unknown_identity(tmp_path):
    for name in ("a.jpg", "trip/b.png", "trip/a.jpg", "c10.png", "c2.png"):
        write_image(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    opened = open_folder(tmp_path, NAMES)
    manifest, how = opened.manifest, opened.how
    assert how == "identities unknown"
    assert images(manifest) == [
        {"rgb": name} for name in ("a.jpg", "c2.png", "c10.png", "trip/a.jpg", "trip/b.png")
    ]
    assert {(s.identity, s.camera, s.split) for s in manifest.samples} == {("", "", "gallery")}
    assert manifest.modalities == ("rgb",)
    assert open_folder(tmp_path, ("tir",)).manifest.modalities == ("tir",), "the only one the model knows"
    assert open_folder(tmp_path, NAMES, "nir").manifest.modalities == ("nir",)


@pytest.mark.parametrize(
    "files",
    [
        ("rgb/1.jpg", "nir/1.png", "rgb/2.jpg", "tir/2.jpg"),
        ("x/vis/1.jpg", "x/NI/1.png", "x/vis/2.jpg", "x/th/2.jpg"),
        ("1_rgb.jpg", "1_nir.png", "2-RGB.jpg", "2-tir.jpg"),
        ("day/1.rgb.jpg", "day/1.nir.png", "day/2_rgb.jpg", "day/2_tir.jpg"),
    ],
)
def test_modalities_are_told_by_folder_or_name(tmp_path, files):
    for name in files:
        write_image(tmp_path / name)
    manifest = open_folder(tmp_path, NAMES).manifest
    rgb, nir, other, tir = files
    assert sorted(images(manifest), key=lambda found: found["rgb"]) == [
        {"rgb": rgb, "nir": nir},
        {"rgb": other, "tir": tir},
    ]
    assert manifest.modalities == NAMES


def test_a_known_layout_brings_its_identities(tmp_path):
    for name in ("rgb/anna/1_a.png", "nir/anna/1_a.png", "rgb/bert/2_a.png"):
        write_image(tmp_path / name)
    opened = open_folder(tmp_path, ("rgb", "tir"))
    manifest, how = opened.manifest, opened.how
    assert how == "layout folder"
    assert [(s.identity, s.camera) for s in manifest.samples] == [("anna", "1"), ("bert", "2")]
    assert images(manifest) == [{"rgb": "rgb/anna/1_a.png"}, {"rgb": "rgb/bert/2_a.png"}]


def test_a_layout_that_leaves_images_out_is_not_taken(tmp_path):
    for name in ("0001_c1s1_01.jpg", "holiday.jpg"):
        write_image(tmp_path / name)
    opened = open_folder(tmp_path, NAMES)
    manifest, how = opened.manifest, opened.how
    assert how == "identities unknown"
    assert len(manifest.samples) == 2


def test_photos_named_as_strips_are_not_cut_up(tmp_path):
    write_image(tmp_path / "0001_c1_01.jpg", (24, 16))
    manifest = open_folder(tmp_path, NAMES).manifest
    assert images(manifest) == [{"rgb": "0001_c1_01.jpg"}]
    assert manifest.samples[0].images["rgb"].box is None


def test_what_cannot_be_understood_is_refused(tmp_path):
    with pytest.raises(DataError, match="no images below this folder"):
        read_unlabelled(tmp_path, NAMES)
    write_image(tmp_path / "rgb" / "a.png")
    write_image(tmp_path / "rgb" / "a.jpg")
    with pytest.raises(DataError, match="same image of one sample"):
        read_unlabelled(tmp_path, NAMES)
    write_image(tmp_path / "b" / "a.png")
    with pytest.raises(DataError, match="neither its folder nor its name"):
        read_unlabelled(tmp_path / "b", ("nir", "tir"))
    with pytest.raises(ConfigError, match="modality 'depth'; the model knows rgb, nir, tir"):
        read_unlabelled(tmp_path / "b", NAMES, "depth")


def test_one_scene_in_three_bands_is_one_sample(tmp_path):
    for scene in range(4):
        for word in ("vis", "nir", "thermal"):
            write_image(tmp_path / f"scene{scene}_{word}.png")
    opened = open_folder(tmp_path, NAMES)
    assert len(opened.manifest.samples) == 4
    assert all(tuple(found) == NAMES for found in images(opened.manifest))
    assert opened.notes == ()


def test_a_guessed_modality_is_said(tmp_path):
    for name in ("a.png", "a_thermal.png", "b.png"):
        write_image(tmp_path / name)
    opened = open_folder(tmp_path, NAMES)
    assert images(opened.manifest) == [{"rgb": "a.png", "tir": "a_thermal.png"}, {"rgb": "b.png"}]
    (note,) = opened.notes
    assert "2 images name no modality and are taken as rgb, first: a.png" in note
    assert open_folder(tmp_path, NAMES, "rgb").notes == (), "no guess: it was said"


def test_modalities_that_the_model_does_not_know_are_left_out_and_said(tmp_path):
    for name in ("a_rgb.png", "a_th.png"):
        write_image(tmp_path / name)
    opened = open_folder(tmp_path, ("rgb", "nir"))
    assert images(opened.manifest) == [{"rgb": "a_rgb.png"}]
    assert opened.notes == ("1 tir images are left out: the model does not know tir",)
    with pytest.raises(DataError, match="no images of nir, only of rgb, tir"):
        read_unlabelled(tmp_path, ("nir",))


def test_unclear_names_and_two_files_of_one_stem_are_refused(tmp_path):
    write_image(tmp_path / "x" / "a_ir.png")
    with pytest.raises(DataError, match=r"a_ir\.png: 'ir' may be nir or tir"):
        read_unlabelled(tmp_path / "x", NAMES)
    assert images(read_unlabelled(tmp_path / "x", NAMES, "tir").manifest) == [{"tir": "a_ir.png"}]
    write_image(tmp_path / "y" / "a.png")
    write_image(tmp_path / "y" / "a.jpg")
    with pytest.raises(DataError, match="same image of one sample"):
        read_unlabelled(tmp_path / "y", NAMES)


def test_names_that_are_not_utf8_are_refused_before_any_work(tmp_path):
    image = write_image(tmp_path / "a.png")
    image.rename(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png"))
    with pytest.raises(DataError, match=r"caf\\xe9\.png: the name is not UTF-8") as caught:
        open_folder(tmp_path, NAMES)
    str(caught.value).encode("utf-8")
