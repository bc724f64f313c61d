"""A logger that is quietened for a while speaks again, also after an error."""

from __future__ import annotations

import logging

import pytest

from slimreid.cli.app import main
from slimreid.cli.console import console, print_table, quietened, say, table
from slimreid.progress import errors


def test_a_quietened_logger_speaks_again_also_after_an_error(caplog):
    logger = logging.getLogger("slimreid.some.part")
    logger.setLevel(logging.INFO)

    def fail():
        with quietened("slimreid.some.part", logging.ERROR):
            logger.warning("not heard")
            raise ValueError("stop")

    try:
        with pytest.raises(ValueError, match="stop"):
            fail()
        logger.info("heard")
    finally:
        logger.setLevel(logging.NOTSET)
    assert [record.getMessage() for record in caplog.records] == ["heard"]


HOSTILE = ["[north]1", "[/x]", "nope\\[/x]", "[bold]", "[link=x]y[/link]", ":smile:"]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_printed_as_it_is(text, capsys):
    say(text)
    console.print(table(["camera", text], [[text, text]], title=text))
    errors.print(text)
    out, err = capsys.readouterr()
    assert out.count(text) == 5
    assert text in err


@pytest.mark.parametrize("text", HOSTILE)
def test_errors_show_what_was_typed(text, capsys):
    for words in (["data", "check", text], ["train", f"--data.manifst={text}"], [text], ["train", text]):
        assert main(words) != 0
        out, err = capsys.readouterr()
        assert text in err or "manifst" in err
        assert "Traceback" not in out + err


def test_rows_of_a_narrow_table_can_be_told_apart(monkeypatch, capsys):
    monkeypatch.setattr(console, "width", 80, raising=False)
    names = [f"keep_ratio={k}, merge_ratio={m}, estimator=gumbel" for k in (0.3, 0.5) for m in (0.4, 0.6)]
    heads = ["model", "runs", "mAP", "95 %", "rank-1", "against the first", "GFLOPs", "images/s", "M param"]
    rows = [
        [name, 3, "45.1 ± 0.3", "44.1-46.2", "61.0", "+0.3 (-0.2 to 0.9)", "1.003", "812", "22.1"]
        for name in names
    ]
    print_table(heads, rows)
    out = capsys.readouterr().out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80
    for word in (
        "keep_ratio=0.3,",
        "keep_ratio=0.5,",
        "merge_ratio=0.4,",
        "merge_ratio=0.6,",
        "+0.3 (-0.2 to 0.9)",
    ):
        assert word in out
