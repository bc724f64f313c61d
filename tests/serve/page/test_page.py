"""The page of the service in a real browser: every flow, every state, phone, keyboard, dark, Chinese."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.browser import PHONE
from support.page_visit import LATIN, rows_of

pytestmark = pytest.mark.browser

VIEWS = ("search", "identities", "clusters", "log", "calibration", "service")
REFUSED = "Failed to load resource"
"""The browser's own remark on an answer that is an error."""
SAME, OTHER = "0_1_0", "9_1_0"
"""An image that is enrolled, as id0; one of somebody who is not."""


def test_images_are_answered_at_once_with_a_decision_and_ranked_matches(visit):
    with visit() as it:
        assert it.text(".panel h2") == "Who is it?"
        it.judge()
        it.put(SAME, modalities=("rgb",))
        it.put(SAME, modalities=("nir", "tir"))
        assert it.text("#decision") == "Known: id0"
        assert "One stranger in 100 would be taken for somebody." in it.text(".decision")
        assert it.texts("#spoken")[0].startswith("Known: id0. One stranger in 100")
        assert re.match(r"12 matches of \d+ rows searched", it.text("#matches"))
        assert it.texts(".matches .card .name")[0] == "id0"
        first = it.text(".matches .card >> nth=0")
        assert "1.000" in first
        assert "Mar 1, 2026" in first
        assert it.texts(".matches .card >> nth=0 >> figcaption") == ["RGB", "NIR", "TIR"]
        assert it.page.locator(".matches .card .meter.strict").count() == 1
        it.page.locator(".matches .card img").first.scroll_into_view_if_needed()
        images = "[...document.querySelectorAll('.matches .card:first-child img')]"
        it.page.wait_for_function(f"{images}.every(image => image.complete && image.naturalWidth > 0)")
        it.judge()


def test_answers_may_be_unsure_or_unknown_by_the_rate_that_is_accepted(visit):
    with visit() as it:
        it.put(OTHER)
        assert it.text("#decision") == "Unsure"
        assert 1 < it.page.locator(".candidates li").count() <= 5
        it.judge()
        with it.page.expect_response("**/v1/identify"):
            it.page.get_by_label("Accepted error").select_option("0.001")
        it.page.wait_for_selector(".decision.unknown")
        assert "Nobody in the gallery is similar enough. One stranger in 1,000" in it.text(".decision")
        it.judge()


def test_matches_are_filtered_and_ranked_by_identity(visit):
    with visit() as it:
        it.put(SAME)

        def changed(do: Callable[[], Any]) -> None:
            with it.page.expect_response("**/v1/identify"):
                do()
            it.page.wait_for_selector(".answer:not([aria-busy])")

        changed(lambda: it.page.get_by_label("Camera").select_option("2"))
        assert set(it.texts(".matches .fact:has(use[href$=camera])")) == {"camera 2"}
        assert it.text(".options summary") == "Options and filters (1 set)"
        changed(lambda: it.page.get_by_label("Rank by").select_option("identities"))
        names = it.texts(".matches .card .name")
        assert len(names) == len(set(names)) == 5
        changed(lambda: it.page.get_by_label("From").fill("2030-01-01T00:00"))
        assert "No row matches the filters" in it.text(".matches")
        changed(lambda: it.click("Clear filters"))
        assert it.text(".options summary") == "Options and filters"
        field = it.page.get_by_label("Identity", exact=True)
        changed(lambda: (field.fill("id3"), field.press("Tab")))
        assert set(it.texts(".matches .card .name")) == {"id3"}


def test_several_shots_dropped_at_once_are_one_query(visit):
    with visit() as it:
        files = [(name, modality) for name in (SAME, "0_1_1") for modality in ("rgb", "tir")]
        transfer = it.page.evaluate_handle("() => new DataTransfer()")
        for name, modality in files:
            content = list(Path(it.file(name, modality)).read_bytes())
            it.page.evaluate(
                "([transfer, bytes, name]) =>"
                " transfer.items.add(new File([new Uint8Array(bytes)], name, { type: 'image/png' }))",
                [transfer, content, f"{name}_{modality}.png"],
            )
        with it.page.expect_response("**/v1/identify"):
            it.page.dispatch_event(".zone", "drop", {"dataTransfer": transfer})
        it.page.wait_for_selector(".decision")
        shots = it.page.locator(".shot")
        assert shots.count() == 2
        assert [shots.nth(n).locator(".slot.filled").count() for n in (0, 1)] == [2, 2]
        assert it.texts(".shot >> nth=1 >> .caption") == ["visible", "thermal"]
        it.click("Remove: Query, visible, shot 2")
        it.page.wait_for_selector(".shot >> nth=1 >> label.slot:has-text('visible')")
        it.click("Clear")
        it.page.wait_for_selector(".panel")
        assert it.page.locator(".slot.filled").count() == 0


def test_query_and_match_are_compared_side_by_side_with_kept_patches(visit):
    with visit() as it:
        it.put(SAME)
        it.page.get_by_label("Kept patches").check()
        it.page.wait_for_selector(".slot .shade")
        assert it.page.locator(".slot .shade").count() == 3
        assert it.page.locator(".slot .shade").first.get_attribute("aria-label") == "4 of 8 patches kept"
        it.page.get_by_label("Kept patches").uncheck()
        it.click("Compare row 1")
        assert it.texts("dialog figcaption") == ["visible", "near infrared", "thermal"]
        it.page.locator("dialog").get_by_label("Kept patches").check()
        it.page.wait_for_selector("dialog .shade")
        assert it.page.locator("dialog .shade").count() == 6
        it.judge()
        it.page.keyboard.press("Escape")
        assert it.page.locator("dialog").count() == 0


def test_changes_are_shown_before_they_are_made_and_can_be_undone(visit, url):
    with visit() as it:
        it.go("identity/id1")
        before = rows_of(url, "id1")
        it.click("Rename …")
        it.page.get_by_label("New name").fill("another")
        it.page.wait_for_selector("dialog button.main:not([disabled])")
        it.page.get_by_label("New name").fill("<b>Ärger & Söhne</b>")
        assert it.page.locator("dialog button.main").is_disabled(), "what is shown is of another name"
        it.page.wait_for_selector(".effect table")
        assert "4 rows: id1 → <b>Ärger & Söhne</b>" in it.text(".effect")
        it.judge()
        assert rows_of(url, "id1") == before, "nothing happened yet"
        it.click("Rename")
        it.page.wait_for_selector("h1:has-text('<b>Ärger & Söhne</b>')")
        assert rows_of(url, "<b>Ärger & Söhne</b>") == before
        it.click("Undo")
        it.page.wait_for_selector(".toast:has-text('Undone.')")
        assert rows_of(url, "id1") == before


def test_rows_are_split_assigned_and_removed(visit, url):
    with visit() as it:
        rows = rows_of(url, "id2")
        for button, field, value, there in (
            ("Split …", "New name", "second", lambda: rows_of(url, "second") == rows[:2]),
            ("Assign …", "Identity", "", lambda: rows_of(url, "id2") == rows[2:]),
            ("Remove …", None, "", lambda: rows_of(url, "id2") == rows[2:]),
        ):
            it.go("log")
            it.go("identity/id2")
            for number in rows[:2]:
                it.page.get_by_label(f"Choose row {number}").check()
            assert "2 rows chosen" in it.text(".choicebar")
            it.page.locator(".choicebar").get_by_role("button", name=button).click()
            if field:
                it.page.locator("dialog").get_by_label(field).fill(value)
            it.page.wait_for_selector("dialog button.main:not([disabled])")
            assert "2 rows change" in it.text(".effect")
            assert rows_of(url, "id2") == rows
            it.page.click("dialog button.main")
            it.page.wait_for_selector(".toast:has-text('Done')")
            assert there(), button
            it.click("Undo")
            it.page.wait_for_selector(".toast:has-text('Undone.')")
            assert rows_of(url, "id2") == rows


def test_identities_are_found_and_merged_and_the_log_undoes_it(visit, url):
    with visit() as it:
        it.go("identities")
        it.page.get_by_label("Find a name").fill("id3")
        it.page.wait_for_selector("p:has-text('1 identity')")
        assert it.texts(".cards .name") == ["id3"]
        it.page.get_by_label("Find a name").fill("")
        it.page.wait_for_selector(".card img")
        it.judge()
        both = sorted(rows_of(url, "id3") + rows_of(url, "id4"))
        for name in ("id3", "id4"):
            it.page.get_by_label(f"Choose {name}").check()
        it.click("Merge …")
        it.page.wait_for_selector(".effect table")
        assert "none: the name disappears" in it.text(".effect")
        it.click("Merge")
        it.page.wait_for_selector(".toast:has-text('Done')")
        assert rows_of(url, "id3") == both
        it.go("log")
        assert it.texts(".log li >> nth=0 >> b") == ["merged"]
        it.judge()
        it.click("Undo the last change …")
        it.page.wait_for_selector("dialog button.main:not([disabled])")
        assert "4 rows: id3 → id4" in it.text(".effect")
        it.page.click("dialog button.main")
        it.page.wait_for_selector(".log .undone")
        assert len(rows_of(url, "id3")) == 4


def test_the_query_is_enrolled_and_a_second_time_is_noticed(visit, url):
    with visit() as it:
        it.put(OTHER, modalities=("rgb",))
        it.page.locator(".decision button").click()
        dialog = it.page.locator("dialog")
        dialog.get_by_label("Identity").fill("newcomer")
        dialog.get_by_label("Camera").fill("gate")
        it.page.wait_for_selector("dialog button.main:not([disabled])")
        assert "1 row is added." in it.text(".effect")
        assert "Shot 1 (visible): new." in it.text(".effect")
        it.judge()
        it.page.click("dialog button.main")
        it.page.wait_for_selector(".toast:has-text('1 row was enrolled.')")
        assert len(rows_of(url, "newcomer")) == 1
        it.page.wait_for_selector("#decision:has-text('Known: newcomer')")
        it.page.locator(".query").get_by_role("button", name="Enrol …").click()
        it.page.wait_for_selector(".effect:has-text('all of it is in the gallery already')")
        it.page.keyboard.press("Escape")
        it.click("Undo")
        it.page.wait_for_selector(".toast:has-text('Undone.')")
        assert rows_of(url, "newcomer") == []


def test_rows_without_a_name_are_grouped_and_named(visit, url):
    with visit() as it:
        nothing_alike = f"{url}v1/clusters?threshold=9"
        it.page.route("**/v1/clusters*", lambda route: route.continue_(url=nothing_alike))
        it.go("clusters")
        it.page.get_by_label("Accepted error").select_option("0.01")
        it.page.wait_for_selector("text=4 rows resemble no other.")
        it.judge()
        it.page.unroute("**/v1/clusters*")
        with it.page.expect_response("**/v1/clusters*"):
            it.page.evaluate("history.replaceState(null, '', '#search')")
            it.page.route(
                "**/v1/clusters*", lambda route: route.continue_(url=f"{url}v1/clusters?threshold=0.1")
            )
            it.page.evaluate("location.hash = '#clusters'")
        it.page.wait_for_selector(".cluster")
        names = it.texts(".cluster h2")
        assert names[0].startswith("4 rows")
        it.judge()
        it.page.locator(".cluster .choose input").first.uncheck()
        it.page.locator(".cluster button.main").click()
        it.page.locator("dialog").get_by_label("Identity").fill("found")
        it.page.wait_for_selector(".effect:has-text('3 rows: no name → found')")
        it.click("Assign")
        it.page.wait_for_selector(".toast:has-text('Done')")
        assert len(rows_of(url, "found")) == 3
        it.click("Undo")
        it.page.wait_for_selector(".toast:has-text('Undone.')")
        assert rows_of(url, "found") == []


def test_the_calibration_is_a_curve_with_the_threshold_and_the_service_says_how_it_is(visit):
    with visit() as it:
        it.go("calibration")
        it.page.wait_for_selector(".curve")
        assert it.page.text_content(".threshold-text") == "threshold 1.000"
        assert it.page.locator(".curve .dot.promised").count() == 3
        it.page.get_by_label("Accepted error").select_option("0.001")
        it.page.wait_for_selector(".threshold-text:has-text('threshold 1.500')")
        it.page.get_by_label("Query seen in").select_option("r")
        assert "one stranger in 1,000 gets there" in it.text(".sentence")
        it.judge()
        it.go("service")
        facts = it.text(".facts")
        assert "fp32" in facts
        assert "visible, near infrared, thermal" in facts
        assert it.texts(".tiles b")[0] == "24"
        assert "places in the queue taken" in it.text(".load")
        it.judge()


def test_a_token_opens_the_page_and_viewers_cannot_change_anything(visit, guarded):
    address, secrets = guarded
    with visit(address, allowed=REFUSED, viewport=PHONE) as it:
        assert it.page.locator("nav").is_hidden()
        it.judge()
        it.page.get_by_label("Token").fill("srid_wrong")
        it.page.keyboard.press("Enter")
        it.page.wait_for_selector(".problem:has-text('The token is not valid.')")
        it.judge()
        it.page.get_by_label("Token").fill(secrets["viewer"])
        it.page.keyboard.press("Enter")
        it.page.wait_for_selector(".zone")
        assert "Changes need the role editor." in it.text("#banner")
        assert it.text(".panel h2") == "The gallery is empty"
        it.put(OTHER, modalities=("rgb",))
        assert it.page.get_by_role("button", name="Enrol").count() == 0
        it.judge()
        it.go("enrol")
        assert it.text(".panel h2") == "Your role does not allow this."
        it.go("calibration")
        assert it.page.get_by_role("button", name="Calibrate now").count() == 0
        it.judge()
        it.click("Log out")
        it.page.wait_for_selector(".login")


def test_an_empty_gallery_becomes_one_without_calibration(visit, guarded):
    address, secrets = guarded
    with visit(address) as it:
        it.page.get_by_label("Token").fill(secrets["admin"])
        it.page.keyboard.press("Enter")
        it.page.wait_for_selector(".panel:has-text('The gallery is empty')")
        it.judge()
        it.go("identities")
        assert it.text(".panel h2") == "The gallery is empty"
        it.go("search")
        it.put(OTHER, modalities=("tir",))
        assert it.text("#decision") == "No decision"
        it.page.locator(".query").get_by_role("button", name="Enrol …").click()
        it.page.locator("dialog").get_by_label("Identity").fill("first")
        it.page.wait_for_selector("dialog button.main:not([disabled])")
        it.page.click("dialog button.main")
        it.page.wait_for_selector(".note:has-text('The gallery is not calibrated')")
        assert it.text("#decision") == "No decision"
        assert "not calibrated" in it.text(".decision")
        assert it.texts(".matches .card .name") == ["first"]
        it.judge()
        it.go("calibration")
        assert it.text(".panel h2") == "Not calibrated yet"
        it.judge()
        it.go("log")
        assert "admin of the tests" in it.text(".log")
        it.click("Undo the last change …")
        it.page.wait_for_selector("dialog button.main:not([disabled])")
        it.page.click("dialog button.main")
        it.page.wait_for_selector(".log .undone")


def test_what_goes_wrong_is_said_and_can_be_tried_again(visit, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_text("no image")
    with visit(allowed=REFUSED, viewport=PHONE) as it:
        it.page.set_input_files('[data-shot="0"][data-modality="rgb"] input', str(broken))
        it.page.wait_for_selector(".problem")
        assert "This could not be read." in it.text(".problem")
        assert "broken.png" in it.text(".slot.filled")
        it.judge()
        it.page.route("**/v1/log*", lambda route: route.fulfill(status=500, body="oh"))
        it.go("log")
        it.page.wait_for_selector(".problem:has-text('an answer that this page does not understand')")
        it.judge()
        it.page.unroute("**/v1/log*")
        it.click("Try again")
        it.page.wait_for_selector(".log")


def test_a_lost_connection_is_told_and_waited_for(visit):
    with visit(allowed="ERR_INTERNET_DISCONNECTED") as it:
        it.page.context.set_offline(True)
        it.page.set_input_files('[data-shot="0"][data-modality="rgb"] input', it.file(SAME, "rgb"))
        it.page.wait_for_selector("#banner:has-text('The connection to the service is lost.')")
        drawn = "icons => icons.every(icon => icon.getBBox().width > 0)"
        assert it.page.eval_on_selector_all("#banner .icon, .problem .icon", drawn)
        it.judge()
        it.page.context.set_offline(False)
        it.page.wait_for_selector("#banner:not(:has(*))", state="attached")
        assert it.page.locator(".slot.filled").count() == 1, "what was entered is still there"
        it.page.wait_for_selector(".decision")


def test_everything_works_with_the_keyboard_alone(visit, url):
    with visit() as it:
        keys = it.page.keyboard
        it.page.on("filechooser", lambda chooser: None)  # caught from now on, not only when Enter is pressed

        def focused() -> str:
            return str(it.page.evaluate("document.activeElement.textContent || document.activeElement.id"))

        keys.press("Tab")
        assert focused() == "Skip to the content"
        keys.press("Enter")
        assert it.page.evaluate("document.activeElement.id") == "main"
        keys.press("Tab")
        with it.page.expect_file_chooser() as chooser, it.page.expect_response("**/v1/identify"):
            keys.press("Enter")
            chooser.value.set_files(it.file(SAME, "rgb"))
        it.page.wait_for_selector(".decision")
        assert it.page.evaluate("document.activeElement.ariaLabel").startswith("Remove: Query, visible")
        it.page.focus("nav a[href='#identities']")
        keys.press("Enter")
        it.page.wait_for_selector("h1:has-text('Identities')")
        assert focused() == "Identities", "the focus is where the view begins"
        it.page.focus(".cards a >> nth=0")
        keys.press("Enter")
        it.page.wait_for_selector("h1:has-text('id0')")
        for _ in range(2):
            keys.press("Tab")
        assert focused() == "Merge …"
        keys.press("Enter")
        it.page.wait_for_selector("dialog[open]")
        for _ in range(20):
            keys.press("Tab")
            assert it.page.evaluate(
                "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
            )
        keys.press("Escape")
        assert focused() == "Merge …", "the focus comes back"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_and_light_on_a_phone(visit, scheme):
    with visit(viewport=PHONE, color_scheme=scheme) as it:
        background = "getComputedStyle(document.body).backgroundColor"
        papers = {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 29)"}
        assert it.page.evaluate(background) == papers[scheme]
        if scheme == "dark":
            it.put(SAME, modalities=("rgb",))
            it.judge()
            it.page.get_by_role("button", name="Compare row 1", exact=True).click()
            it.judge()
            it.page.keyboard.press("Escape")
            for view in VIEWS[1:]:
                it.go(view)
                it.judge()
        it.go("search")
        it.click("Dark colours")
        other = papers["dark" if scheme == "light" else "light"]
        assert it.page.evaluate(background) == other
        it.page.reload()
        it.page.wait_for_selector(".zone")
        assert it.page.evaluate(background) == other


def test_in_chinese_nothing_is_left_in_english(visit):
    with visit(viewport=PHONE, locale="zh-CN") as it:
        assert it.page.get_attribute("html", "lang") == "zh-CN"
        it.put(SAME)
        assert it.text("#decision") == "已知：id0"
        assert "每 100 个陌生人中会有一个被误认" in it.text(".decision")
        assert it.page.evaluate(LATIN) == []
        it.judge()
        it.page.locator(".decision button").click()
        it.page.wait_for_selector("dialog button.main:not([disabled])")
        assert it.page.evaluate(LATIN) == []
        it.page.keyboard.press("Escape")
        it.page.locator(".compare").first.click()
        assert it.page.evaluate(LATIN) == []
        it.page.keyboard.press("Escape")
        for view in (*VIEWS[1:], "enrol", "identity/id0"):
            it.go(view)
            assert it.page.evaluate(LATIN) == [], view
        it.page.get_by_label("语言").select_option("en")
        it.page.wait_for_selector("button:has-text('Rename …')")
        assert it.page.get_attribute("html", "lang") == "en"
        assert it.text("nav")
        assert it.page.evaluate(LATIN) != []


def test_the_policy_of_the_page_allows_nothing_inline_and_nothing_from_elsewhere(url):
    policy = httpx.get(url).headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy
