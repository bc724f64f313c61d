import unicodedata

import pytest

from slimreid.data.importing.datasets import import_layout
from slimreid.data.importing.layouts import LAYOUTS
from slimreid.data.importing.scan import compile_template
from slimreid.data.manifest import read_manifest, write_manifest
from slimreid.errors import ConfigError, DataError

ROWS = {
    "rgbnt201": {
        "train_171/{RGB,NI,TI}/000258_cam1_0_00.jpg": ("train", "000258", "1", ""),
        "train_171/{RGB,NI,TI}/000259_cam4_0_02.jpg": ("train", "000259", "4", ""),
        "test/{RGB,NI,TI}/000001_cam2_0_01.jpg": ("query gallery", "000001", "2", ""),
    },
    "rgbnt100": {
        "rgbir/bounding_box_train/0001_c1_0001.jpg": ("train", "0001", "1", ""),
        "rgbir/query/0051_c3_0002.jpg": ("query", "0051", "3", ""),
        "rgbir/bounding_box_test/0051_c8_0002.jpg": ("gallery", "0051", "8", ""),
    },
    "msvr310": {
        "bounding_box_train/0001/{vis,ni,th}/0001_s001_v1_000.jpg": ("train", "0001", "1", "001"),
        "query3/0002/{vis,ni,th}/0002_s012_v7_001.jpg": ("query", "0002", "7", "012"),
        "bounding_box_test/0002/{vis,ni,th}/0002_s003_v2_001.jpg": ("gallery", "0002", "2", "003"),
    },
    "wmveid863": {
        "train/0004/{vis,ni,th}/v1_n1_s001_0001.jpg": ("train", "0004", "1", "001"),
        "query/0007/{vis,ni,th}/v2_n0_s010_0001.jpg": ("query", "0007", "2", "010"),
        "test/0007/{vis,ni,th}/v3_n0_s011_0001.jpg": ("gallery", "0007", "3", "011"),
    },
    "market1501": {
        "bounding_box_train/0002_c1s1_000451_03.jpg": ("train", "0002", "1", ""),
        "query/0003_c2s1_000451_00.jpg": ("query", "0003", "2", ""),
        "bounding_box_test/0003_c6s3_088117_01.jpg": ("gallery", "0003", "6", ""),
        "bounding_box_test/0000_c6s3_088117_09.jpg.jpg": ("gallery", "0000", "6", ""),
    },
    "folder": {
        "train/{rgb,nir,tir}/Müller 7/north_1.png": ("train", "Müller 7", "north", ""),
        "test/{rgb,nir,tir}/Åsa/south_1.png": ("query gallery", "Åsa", "south", ""),
    },
}


def expand(path):
    """`a/{x,y}/b` -> [`a/x/b`, `a/y/b`]."""
    if "{" not in path:
        return [path]
    head, rest = path.split("{", 1)
    names, tail = rest.split("}", 1)
    return [f"{head}{name}{tail}" for name in names.split(",")]


def make_tree(root, layout, write_image):
    strip = LAYOUTS[layout].strip
    for pattern in ROWS[layout]:
        for path in expand(pattern):
            write_image(root / path, (768, 128) if strip else (8, 16))
    (root / "readme.txt").write_text("not an image")
    return root


def expected_rows(layout):
    return sorted((split, *fields) for splits, *fields in ROWS[layout].values() for split in splits.split())


@pytest.mark.parametrize("layout", ROWS)
@pytest.mark.parametrize("asked", ["named", "auto"])
def test_layouts_give_the_rows_of_the_specification(tmp_path, write_image, layout, asked):
    make_tree(tmp_path, layout, write_image)
    imported = import_layout(tmp_path, layout if asked == "named" else "auto")
    assert imported.layout == layout
    assert imported.notes == ()
    rows = sorted((s.split, s.identity, s.camera, s.scene) for s in imported.manifest.samples)
    assert rows == expected_rows(layout)
    names = ("rgb",) if layout == "market1501" else ("rgb", "nir", "tir")
    assert imported.manifest.modalities == names
    assert all(tuple(s.images) == names for s in imported.manifest.samples)
    assert imported.manifest.protocol == ("scene" if layout == "msvr310" else "camera")
    for sample in imported.manifest.samples:
        for image in sample.images.values():
            assert (tmp_path / image.path).is_file()
            assert "\\" not in image.path


@pytest.mark.parametrize(("layout", "parent"), [("rgbnt201", "RGBNT201"), ("rgbnt100", "RGBNT100")])
def test_parent_folder_works_too(tmp_path, write_image, layout, parent):
    make_tree(tmp_path / parent, layout, write_image)
    assert len(import_layout(tmp_path, "auto").manifest.samples) == len(expected_rows(layout))


def test_strips_are_cut_into_equal_parts(tmp_path, write_image):
    sample = import_layout(make_tree(tmp_path, "rgbnt100", write_image), "rgbnt100").manifest.samples[0]
    boxes = [image.box for image in sample.images.values()]
    assert boxes == [(0, 0, 256, 128), (256, 0, 512, 128), (512, 0, 768, 128)]
    assert len({image.path for image in sample.images.values()}) == 1


def test_strip_of_odd_width_is_refused(tmp_path, write_image):
    write_image(tmp_path / "rgbir/query/0051_c3_0002.jpg", (767, 128))
    with pytest.raises(DataError, match=r"0051_c3_0002\.jpg: a strip of 767×128"):
        import_layout(tmp_path, "rgbnt100")


def test_wmveid_reports_missing_partners_and_keeps_the_night(tmp_path, write_image):
    make_tree(tmp_path, "wmveid863", write_image)
    (tmp_path / "query/0007/ni/v2_n0_s010_0001.jpg").unlink()
    imported = import_layout(tmp_path, "wmveid863")
    assert "1 samples lack a modality" in imported.notes[0]
    assert "query/0007/vis/v2_n0_s010_0001.jpg has no nir" in imported.notes[0]
    query = imported.manifest.select("query")[0]
    assert set(query.images) == {"rgb", "tir"}
    assert query.extras == {"x_night": "0"}


def test_market_junk_is_left_out(tmp_path, write_image):
    make_tree(tmp_path, "market1501", write_image)
    write_image(tmp_path / "bounding_box_test/-1_c1s1_000401_03.jpg")
    assert all(s.identity != "-1" for s in import_layout(tmp_path).manifest.samples)


def test_flat_source_is_told_apart(tmp_path, write_image):
    write_image(tmp_path / "0002_c1s1_000451_03.jpg")
    imported = import_layout(tmp_path, "auto")
    assert (imported.layout, imported.flat) == ("market1501", True)


def test_import_is_deterministic_and_relative_to_the_manifest(tmp_path, write_image):
    source = make_tree(tmp_path / "set", "rgbnt201", write_image)
    out = tmp_path / "elsewhere" / "m.csv"
    texts = []
    for _ in range(2):
        write_manifest(import_layout(source, relative_to=out.parent).manifest, out)
        texts.append(out.read_bytes())
    assert texts[0] == texts[1]
    assert b"../set/train_171/RGB/000258_cam1_0_00.jpg" in texts[0]
    manifest = read_manifest(out)
    assert all(manifest.file(i).is_file() for s in manifest.samples for i in s.images.values())


def test_partner_names_may_differ_in_suffix_and_unicode_form(tmp_path, write_image):
    composed, decomposed = (unicodedata.normalize(form, "Zoë") for form in ("NFC", "NFD"))
    write_image(tmp_path / "train" / "rgb" / composed / "1_a.jpg")
    write_image(tmp_path / "train" / "tir" / decomposed / "1_a.png")
    (sample,) = import_layout(tmp_path, "folder").manifest.samples
    assert set(sample.images) == {"rgb", "tir"}
    assert sample.identity == composed


def test_two_files_for_one_image_are_refused(tmp_path, write_image):
    write_image(tmp_path / "train/rgb/a/1_a.jpg")
    write_image(tmp_path / "train/rgb/a/1_a.png")
    with pytest.raises(DataError, match=r"1_a.* and .*1_a.* are the same image"):
        import_layout(tmp_path, "folder")


def test_template_of_ones_own(tmp_path, write_image):
    for name in ("vis", "depth"):
        write_image(tmp_path / f"site-A/{name}/train__bob__cam-3.png")
    template = r"site-{scene}/{modality}/{split}__{identity}__cam-{camera:\d+}"
    (sample,) = import_layout(
        tmp_path, "folder", template=template, modalities=["rgb", "depth"]
    ).manifest.samples
    assert (sample.split, sample.identity, sample.camera, sample.scene) == ("train", "bob", "3", "A")
    assert set(sample.images) == {"rgb", "depth"}
    with pytest.raises(DataError, match=r"depth.*unknown modality 'depth'.*--modalities rgb,depth"):
        import_layout(tmp_path, "folder", template=template)
    with pytest.raises(DataError, match="no image of 'event' was found"):
        import_layout(tmp_path, "folder", template=template, modalities=["rgb", "event"])


def test_wrong_root_shows_both_trees(tmp_path, write_image):
    write_image(tmp_path / "pictures" / "cat.jpg")
    for layout in ("rgbnt201", "auto"):
        with pytest.raises(DataError) as caught:
            import_layout(tmp_path, layout)
        message = str(caught.value)
        assert "{train_171,test}/{RGB,NI,TI}/000258_cam1_0_00.jpg" in message
        assert "pictures/" in message
        assert "cat.jpg" in message


def test_images_that_do_not_fit_are_reported(tmp_path, write_image):
    make_tree(tmp_path, "rgbnt201", write_image)
    write_image(tmp_path / "test/RGB/holiday.jpg")
    assert "1 images do not fit the layout, first: test/RGB/holiday.jpg" in import_layout(tmp_path).notes[0]


def test_bad_requests(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        import_layout(tmp_path / "none")
    with pytest.raises(ConfigError, match="unknown layout 'rgbnt200'"):
        import_layout(tmp_path, "rgbnt200")
    with pytest.raises(ConfigError, match="--template needs"):
        import_layout(tmp_path, "rgbnt201", template="{identity}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{split}/{who}", "unknown field 'who'"),
        ("{identity}/{identity}", "appears twice"),
        ("{identity", "never closed"),
        ("identity}", "without"),
        ("{camera}", "needs at least"),
        ("{identity:[}", "identity"),
    ],
)
def test_bad_templates(text, message):
    with pytest.raises(ConfigError, match=message):
        compile_template(text)


def test_template_braces_in_expressions():
    match = compile_template(r"{identity:\d{4}}_{}").match("0012_x")
    assert match
    assert match["identity"] == "0012"


def test_a_folder_per_person_needs_no_cameras(tmp_path, write_image):
    for name in ("anna", "bert", "cleo"):
        for number in range(2):
            write_image(tmp_path / name / f"{number}.jpg")
            write_image(tmp_path / name / f"{number}_thermal.png")
    imported = import_layout(tmp_path)
    assert (imported.layout, imported.flat) == ("identities", True)
    assert imported.manifest.protocol == "none"
    assert [(s.identity, tuple(s.images)) for s in imported.manifest.samples][::2] == [
        (name, ("rgb", "tir")) for name in ("anna", "bert", "cleo")
    ]
    guess, protocol = imported.notes
    assert "6 images name no modality and are taken as rgb" in guess
    assert "no cameras, so the protocol is 'none'" in protocol


def test_folders_of_modalities_within_those_of_people(tmp_path, write_image):
    for name in ("anna", "bert"):
        for modality in ("vis", "th"):
            write_image(tmp_path / "train" / name / modality / "1.jpg")
    imported = import_layout(tmp_path)
    assert (imported.layout, imported.flat) == ("identities", False)
    assert [tuple(s.images) for s in imported.manifest.samples] == [("rgb", "tir")] * 2


@pytest.mark.parametrize("ending", [".jpg", ".JPG", ""])
def test_a_template_may_end_in_a_suffix(tmp_path, write_image, ending):
    write_image(tmp_path / "anna_1_x.jpg")
    imported = import_layout(tmp_path, template=r"{identity}_{camera:\d}_{}" + ending)
    assert [(s.identity, s.camera) for s in imported.manifest.samples] == [("anna", "1")]
    assert imported.manifest.protocol == "camera"


def test_a_suffix_in_a_template_leaves_out_other_files(tmp_path, write_image):
    write_image(tmp_path / "anna_1.jpg")
    write_image(tmp_path / "bert_1.png")
    imported = import_layout(tmp_path, template="{identity}_{camera}.jpg")
    assert [s.identity for s in imported.manifest.samples] == ["anna"]
    assert "1 images do not fit the layout, first: bert_1.png" in imported.notes[0]


def test_the_name_tells_the_modality_where_the_template_does_not(tmp_path, write_image):
    for name in ("vis", "nir", "TI"):
        write_image(tmp_path / f"anna_1_{name}.png")
    (sample,) = import_layout(tmp_path, template="{identity}_{camera}").manifest.samples
    assert (sample.identity, sample.camera, tuple(sample.images)) == ("anna", "1", ("rgb", "nir", "tir"))
    write_image(tmp_path / "bert_2_ir.png")
    with pytest.raises(DataError, match="'ir' may be nir or tir"):
        import_layout(tmp_path, template="{identity}_{camera}")
