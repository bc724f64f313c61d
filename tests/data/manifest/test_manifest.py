import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimreid.data.lookup import find_sample
from slimreid.data.manifest import (
    ImageRef,
    LabelEncoder,
    Manifest,
    Sample,
    images_from_json,
    images_to_json,
    parse_manifest,
    read_manifest,
    write_manifest,
)
from slimreid.errors import DataError

HEADER = "split,identity,camera,rgb"


def test_reads_missing_cells_boxes_windows_and_extras(tmp_path, write_csv):
    path = write_csv(
        tmp_path / "m.csv",
        "split,identity,camera,scene,RGB,th,rgb_box,tir_window,x_weather",
        "train,7,2,,a/b.jpg,,0 0 256 128,,rain",
        r"query,Zoë,c 1,s1,,heat\x.tif,,100 20000.5,",
    )
    manifest = read_manifest(path)
    assert manifest.modalities == ("rgb", "tir")
    first, second = manifest.samples
    assert first.images == {"rgb": ImageRef("a/b.jpg", (0, 0, 256, 128))}
    assert first.extras == {"x_weather": "rain"}
    assert second.images == {"tir": ImageRef("heat/x.tif", None, (100.0, 20000.5))}
    assert (second.identity, second.camera, second.scene, second.row) == ("Zoë", "c 1", "s1", 3)
    assert manifest.file(first.images["rgb"]) == tmp_path / "a/b.jpg"


def test_folder_stands_for_its_manifest(tmp_path, write_csv):
    write_csv(tmp_path / "manifest.csv", HEADER, "train,1,1,a.jpg")
    assert len(read_manifest(tmp_path).samples) == 1


def test_spreadsheet_byte_order_mark_and_blank_lines(tmp_path):
    (tmp_path / "m.csv").write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\r\n\r\ntrain,1,1,a.jpg\r\n".encode())
    assert read_manifest(tmp_path / "m.csv").samples[0].row == 3


def test_modalities_choose_and_declare_columns(tmp_path, write_csv):
    path = write_csv(tmp_path / "m.csv", "split,identity,camera,rgb,nir,depth", "train,1,1,a,b,c")
    assert set(read_manifest(path, ["rgb", "depth"]).samples[0].images) == {"rgb", "depth"}
    assert set(read_manifest(path, ["nir"]).samples[0].images) == {"nir"}, "others may be left out"
    with pytest.raises(DataError, match="unknown column 'depth'"):
        read_manifest(path)
    with pytest.raises(DataError, match="no path column 'event'"):
        read_manifest(path, ["rgb", "depth", "event"])


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("split,identity,rgb", "no column 'camera'"),
        ("split,identty,camera,rgb", "no column 'identity' .is 'identty' meant"),
        ("split,identity,camera", "no path column 'rgb'"),
        ("split,identity,camera,rgb,tri", "unknown column 'tri'; did you mean 'tir'"),
        ("split,identity,camera,rgb,rgb", "column 'rgb' appears twice"),
        ("split,identity,camera,rgb,vis", "'rgb' and 'vis' are the same"),
        ("split,identity,camera,rgb,nir_box", "'nir_box' has no path column 'nir'"),
        ("split;identity;camera;rgb", "separated by ';'"),
        ("", "empty"),
    ],
)
def test_wrong_headers(tmp_path, write_csv, header, message):
    with pytest.raises(DataError, match=message):
        read_manifest(write_csv(tmp_path / "m.csv", header))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("trian,1,1,a,,", "row 3: unknown split 'trian'; write 'train'"),
        ("test,1,1,a,,", "row 3: unknown split 'test'; use one of"),
        ("train,,1,a,,", "row 3: 'identity' is empty"),
        ("train,1,,a,,", "row 3: 'camera' is empty"),
        ("train,1,1,,,", "row 3: no image at all"),
        ("train,1,1,a", "row 3: 4 cells, but the header has 6"),
        ("train,1,1,a,1 2 3,", "row 3: 'rgb': '1 2 3' is not 4 numbers"),
        ("train,1,1,a,5 0 5 9,", "row 3: box of 'rgb' is empty"),
        ("train,1,1,a,0 0 0.5 0.5,", "row 3: box of 'rgb' is empty"),
        ("train,1,1,a,0 0 inf inf,", "row 3: 'rgb': '0 0 inf inf' is not 4 numbers"),
        ("train,1,1,a,,0 inf", "row 3: 'rgb': '0 inf' is not 2 numbers"),
        ("train,1,1,a,,9 2", "row 3: window of 'rgb' is empty"),
        ("train,1,1,a,,x y", "row 3: 'rgb': 'x y' is not 2 numbers"),
    ],
)
def test_wrong_rows_are_numbered_and_the_others_kept(tmp_path, write_csv, row, message):
    path = write_csv(tmp_path / "m.csv", f"{HEADER},rgb_box,rgb_window", "train,1,1,a,,", row)
    with pytest.raises(DataError, match=message):
        read_manifest(path)
    manifest, problems = parse_manifest(path)
    assert len(manifest.samples) == 1
    assert [p.row for p in problems] == [3]


def test_images_of_a_sample_as_json():
    images = {"rgb": ImageRef("a/b.png"), "tir": ImageRef("ü.png", (1, 2, 3, 4), (0.5, 2.0))}
    assert images_from_json(images_to_json(images)) == images
    earlier = {name: [image.path, image.box, image.window] for name, image in images.items()}
    assert images_from_json(json.dumps(earlier)) == images


def test_constant_columns(tmp_path, write_csv):
    header = f"{HEADER},protocol,origin"
    good = write_csv(tmp_path / "good.csv", header, "train,1,1,a,scene,made up", "train,1,1,b,scene,made up")
    assert (read_manifest(good).protocol, read_manifest(good).origin) == ("scene", "made up")
    mixed = write_csv(tmp_path / "mixed.csv", header, "train,1,1,a,scene,", "train,1,1,b,camera,")
    with pytest.raises(DataError, match="'protocol' must hold one value"):
        read_manifest(mixed)
    odd = write_csv(tmp_path / "odd.csv", header, "train,1,1,a,sceen,")
    with pytest.raises(DataError, match="protocol 'sceen' is not one of"):
        read_manifest(odd)


def test_missing_and_unreadable_tables(tmp_path):
    with pytest.raises(DataError, match="no such manifest"):
        read_manifest(tmp_path / "none.csv")
    with pytest.raises(DataError, match="slimreid data import"):
        read_manifest(tmp_path)
    (tmp_path / "m.csv").write_bytes(b"split,\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8"):
        read_manifest(tmp_path / "m.csv")


text = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8)
boxes = st.one_of(st.none(), st.just((0, 0, 4, 4)))
images = st.builds(ImageRef, text.map(lambda t: t.replace("\\", "/")), boxes)
samples = st.builds(
    Sample,
    st.sampled_from(["train", "val", "query", "gallery"]),
    text,
    text,
    st.one_of(st.just(""), text),
    st.dictionaries(st.sampled_from(["rgb", "nir", "tir"]), images, min_size=1),
)


@given(st.lists(samples, min_size=1, max_size=5), st.sampled_from(["camera", "scene", "none"]))
@settings(max_examples=50, deadline=None)
def test_what_is_written_reads_back(tmp_path_factory, rows, protocol):
    folder = tmp_path_factory.mktemp("manifest")
    manifest = Manifest(tuple(rows), ("rgb", "nir", "tir"), folder, protocol, "here, and there")
    write_manifest(manifest, folder / "m.csv")
    assert read_manifest(folder / "m.csv") == manifest


def test_identities_of_thousands_of_digits(tmp_path, write_csv):
    long = "7" * 5000
    path = write_csv(tmp_path / "m.csv", HEADER, f"train,{long},1,a.jpg", "train,8,1,b.jpg")
    manifest = read_manifest(path)
    assert LabelEncoder.from_manifest(manifest).trained_identities == ("8", long)
    with pytest.raises(DataError, match="no sample"):
        find_sample(manifest, long)


def test_huge_tables_are_not_read(tmp_path, write_csv):
    path = write_csv(tmp_path / "m.csv", HEADER)
    os.truncate(path, 7_000_000_000)
    with pytest.raises(DataError, match="7,000,000,000 bytes are more than"):
        read_manifest(path)


def rarely(strategy):
    return st.one_of(st.none(), st.none(), st.none(), strategy)


@given(
    st.lists(st.tuples(st.integers(0, 400), rarely(st.binary(max_size=12))), min_size=1, max_size=6),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_table_or_a_named_error(tmp_path_factory, changes, cut):
    """Bytes of a good manifest are removed or replaced anywhere."""
    folder = tmp_path_factory.getbasetemp() / "damaged"
    folder.mkdir(exist_ok=True)
    path, table = folder / "m.csv", bytearray(GOOD_TABLE)
    for at, new in changes:
        table[at : at + (1 if new is None else len(new))] = new or b""
    path.write_bytes(bytes(table[: changes[0][0]] if cut else table))
    try:
        manifest, problems = parse_manifest(path)
    except DataError as error:
        assert str(error).startswith(str(path))  # noqa: PT017
    else:
        assert all(problem.row for problem in problems)
        LabelEncoder.from_manifest(manifest)


GOOD_TABLE = (
    "split,identity,camera,scene,rgb,tir,rgb_box,tir_window,protocol,x_note\n"
    + 'train,7,1,,"a,b.jpg",a.tif,0 0 4 4,100 200,camera,"quoted ""text"""\n'
    + "query,Zoë,2,s1,b.jpg,,,,camera,\n" * 4
).encode()
