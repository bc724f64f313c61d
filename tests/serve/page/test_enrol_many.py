"""Many samples enrolled from the page: what is understood of files, what is sent, what goes wrong."""

from __future__ import annotations

import zipfile
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from slimreid.data.importing.modality_names import read_name
from slimreid.errors import DataError
from support.browser import PHONE
from support.page_visit import LATIN, rows_of
from support.runs import NAMES

pytestmark = pytest.mark.browser

PATHS = (
    "0001_rgb.png", "rgb/0001.png", "a/b/NI/0001.jpg", "anna/nir.png", "rgb_0001.png", "th_0001.png", "0001-th.tif",
    "a.TI.png", "near infrared/1.png", "1_near_infrared.png", "x/infrared/1.png", "1_ir.png", "rgb/1_tir.png",
    "rgb/1_rgb.png", "Anna Ä/trk 1/0007 visible.JPEG", "a.b.c.png", "noending", "lwir.png", "1_thermal_rgb.png",
    "a//./b_vis.png", "colour/2.webp", "sample_tirx.png", "a/rgb/b/c.png",
)  # fmt: skip


def test_paths_are_read_as_on_the_command_line(visit):
    with visit() as it:
        script = """async ([paths, names]) => {
          const { readName } = await import("/files.js");
          return paths.map((path) => readName(path, names));
        }"""
        found = it.page.evaluate(script, [PATHS, list(NAMES)])
    for path, here in zip(PATHS, found, strict=True):
        try:
            wanted = read_name(path, NAMES)
        except DataError:
            assert here["several"], path
            continue
        key = "/".join([*here["folders"], *([here["rest"]] if here["rest"] else [])])
        assert (here["modality"], key, here["unclear"]) == (wanted.modality, wanted.key, wanted.unclear), path
        assert not here["several"], path


@pytest.fixture
def packed(folder: Path, tmp_path: Path) -> Path:
    """A zip of two newcomers, one sample that is enrolled, one without a name, and what does not belong there."""
    images = folder / "set"
    contents = {f"new/eve/a_{m}.png": (images / m / "9_1_0.png").read_bytes() for m in NAMES}
    contents |= {f"new/{m}/fay/b.png": (images / m / "9_1_1.png").read_bytes() for m in ("rgb", "tir")}
    contents |= {f"new/id0/known_{m}.png": (images / m / "0_1_0.png").read_bytes() for m in NAMES}
    contents["new/loose.png"] = (images / "rgb" / "9_2_0.png").read_bytes()
    contents["new/eve/broken_tir.png"] = b"no image"
    contents["new/eve/what_ir.png"] = contents["new/notes.txt"] = contents["__MACOSX/._a"] = b"x"
    path = tmp_path / "new.zip"
    with zipfile.ZipFile(path, "w") as file:
        for number, (name, content) in enumerate(contents.items()):
            kind = zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED
            file.writestr(name, content, kind)
    return path


def test_a_zip_is_enrolled_as_a_job_also_through_a_lost_connection(visit, url, packed):
    with visit(allowed="net::ERR_FAILED") as it:
        it.go("identities")
        it.page.get_by_role("link", name="Enrol many …").click()
        it.page.wait_for_selector(".zone.bulk")
        it.judge()
        it.page.set_input_files(".pick input >> nth=0", str(packed))
        it.page.wait_for_selector(".effect:has-text('5 samples are sent.')")
        assert "They are of 3 identities (2 new, 1 in the gallery already)." in it.text(".effect")
        assert "1 sample has no name" in it.text(".effect")
        assert it.texts(".tiles b") == ["5", "4", "2", "4"]
        assert it.texts(".cards .name") == ["eve", "eve", "fay", "id0", "no name"]
        it.page.click("summary:has-text('2 files are left out')")
        it.page.wait_for_selector("canvas")
        it.judge()
        it.page.get_by_label("Camera").fill("gate")
        lost: list[str] = []

        def lose_once(route):
            lost.append(route.request.url)
            if len(lost) == 1:
                route.abort()
            else:
                route.continue_()

        it.page.route("**/samples", lose_once)
        it.click("Enrol 5 samples")
        it.page.wait_for_selector("h2:has-text('Enrolled')")
        assert len(lost) == 2
        assert it.texts(".tiles b") == ["3", "1", "1"]
        assert "eve/broken: tir: not a JPEG" in it.text(".note")
        it.judge()
        assert [len(rows_of(url, name)) for name in ("eve", "fay")] == [1, 1]
        (row,) = httpx.get(f"{url}v1/rows", params={"identity": "fay"}).json()["rows"]
        assert (row["modalities"], row["camera"]) == (["rgb", "tir"], "gate")
        it.click("Undo")
        it.page.wait_for_selector(".toast:has-text('Undone.')")
        assert rows_of(url, "eve") == rows_of(url, "fay") == []


def test_a_folder_is_looked_at_and_a_broken_zip_is_said(visit, folder, packed, tmp_path):
    with visit(viewport=PHONE, locale="zh-CN", color_scheme="dark") as it:
        it.go("enrol")
        broken = tmp_path / "broken.zip"
        broken.write_bytes(packed.read_bytes()[:-40])
        it.page.set_input_files(".pick input >> nth=0", str(broken))
        it.page.wait_for_selector(".note")
        assert "broken.zip" in it.text(".note")
        assert it.page.evaluate(LATIN) == []
        it.page.set_input_files(".pick input >> nth=1", str(folder / "set" / "rgb"))
        it.page.wait_for_selector(".effect p >> nth=1")
        it.page.wait_for_selector("canvas")
        assert it.texts(".cards .name")[0] == "未命名"
        assert it.page.evaluate(LATIN) == []
        it.judge()
        it.page.get_by_label("统一名称").fill("甲")
        assert it.page.locator("button.main").is_disabled(), "what is shown is of no name"
        it.page.wait_for_selector(".cards .name:has-text('甲')")


def test_an_enrolment_that_nobody_ended_is_finished_or_cancelled(visit, url):
    jobs = [httpx.post(f"{url}v1/jobs", json={}).json()["id"] for _ in range(2)]
    with visit() as it:
        it.go("service")
        for left, button in ((1, "All samples sent: finish"), (0, "Cancel the enrolment")):
            it.click(button)
            expect(it.page.locator("button", has_text="Cancel the enrolment")).to_have_count(left)
        it.page.wait_for_selector(".job:has-text('cancelled')")
        it.judge()
    states = {httpx.get(f"{url}v1/jobs/{job}").json()["state"] for job in jobs}
    assert states == {"done", "cancelled"}
