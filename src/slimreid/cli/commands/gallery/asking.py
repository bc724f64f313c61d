"""`slimreid gallery search`, `identify` and `calibrate`."""

from __future__ import annotations

from pathlib import Path

from slimreid.cli.commands.gallery.opening import first_file, open_with_model, row_filter
from slimreid.cli.commands.gallery.remote import identify_server, is_server, search_server
from slimreid.cli.console import console, print_json, print_table, say, table
from slimreid.cli.options.gallery import CalibrateOptions, GallerySearchOptions, IdentifyOptions, QueryOptions
from slimreid.extras import explain_missing
from slimreid.files import check_writable
from slimreid.gallery.answers import Answer
from slimreid.gallery.decisions.calibration import Calibration
from slimreid.gallery.decisions.rates import Estimate
from slimreid.gallery.enrolment.sources import Labels, open_source
from slimreid.gallery.gallery import Gallery
from slimreid.gallery.queries import Query
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.search import open_queries
from slimreid.times import show_time


def search(options: GallerySearchOptions) -> None:
    """Find the rows or identities that are most similar to given images."""
    if options.picture is not None:
        check_writable(options.picture)
    answers = search_server(options) if is_server(options.gallery) else _search_file(options)
    if options.json:
        print_json([answer.to_dict() for answer in answers])
        return
    for answer in answers:
        _print_answer(answer)
    if options.picture is not None:
        say(f"picture: {options.picture}")


def _search_file(options: GallerySearchOptions) -> list[Answer]:
    if options.picture is not None:
        with explain_missing():
            from slimreid.cli.commands.gallery.picture import draw_answers
    gallery, loaded = open_with_model(options)
    with gallery:
        query = _query(gallery, loaded, options)
        which = row_filter(gallery, options)
        answers = gallery.search(query, k=options.top, identities=options.identities, which=which)
        if options.picture is not None:
            draw_answers(gallery, loaded, query, answers, options.picture, patches=options.patches)
    return answers


def _query(gallery: Gallery, loaded: LoadedModel, options: QueryOptions) -> Query:
    samples = open_queries(loaded, options.images, options.modality).manifest.samples
    images = [dict(sample.images) for sample in samples]
    return gallery.query(images, pooled=options.together, camera=options.query_camera)


def _print_answer(answer: Answer) -> None:
    say(f"{answer.query} ({'+'.join(answer.modalities)}) among {answer.searched:,} rows:")
    rows = []
    for match in answer.matches:
        row, image = match.row, first_file(match.row)
        found = [str(match.rank), f"{match.score:.4f}", row.identity, str(row.id)]
        rows.append([*found, row.camera, show_time(row.time), image])
    columns = ["rank", "score", "identity", "row", "camera", "time", "image"]
    used = [n for n in range(len(columns)) if n < 4 or any(row[n] for row in rows)]
    console.print(table([columns[n] for n in used], [[row[n] for n in used] for row in rows]))


def identify(options: IdentifyOptions) -> None:
    """Say who the images show: a name, not sure, or unknown."""
    if is_server(options.gallery):
        answers = identify_server(options)
    else:
        gallery, loaded = open_with_model(options)
        with gallery:
            query = _query(gallery, loaded, options)
            answers = list(gallery.identify(query, rate=options.rate, which=row_filter(gallery, options)))
    if options.json:
        print_json([answer.to_dict() for answer in answers])
        return
    for answer in answers:
        found = answer.decision
        word = f"known {found.name}" if found.state == "known" else found.state
        say(f"{answer.query} ({'+'.join(answer.modalities)}): {word}")
        say(f"  {found.reason}")
        for candidate in found.candidates[:5]:
            say(f"  {candidate.score:8.4f}  {candidate.name}")


def calibrate(options: CalibrateOptions) -> int:
    """Find thresholds with a known rate of false positives; exit code 1 where none can be promised."""
    gallery, loaded = open_with_model(options)
    with gallery:
        probes = None
        if options.data is not None:
            source = open_source(loaded, Path(options.data), Labels(split=options.split))
            probes = gallery.probes(source)
        calibration = gallery.calibrate(probes, rates=options.rates)
    if options.json:
        print(calibration.to_json())
    else:
        _print_calibration(calibration)
    return 0 if any(point.threshold is not None for point in calibration.points) else 1


def _print_calibration(calibration: Calibration) -> None:
    rows = [
        [
            f"{point.rate:.1%}",
            point.subset or "any",
            point.searches,
            _estimate(point.threshold, "{:.3f}"),
            _estimate(point.fnir, "{:.1%}"),
            _estimate(point.achieved, "{:.2%}"),
        ]
        for point in calibration.points
        if point.threshold is not None
    ]
    if rows:
        columns = ["FPIR", "modalities", "searches", "threshold", "FNIR", "FPIR of held-out"]
        print_table(columns, rows)
    for point in calibration.points:
        if point.threshold is None and not point.subset:
            say(f"refused: {point.refusal}")
    size = f"{calibration.bound.identities:,} identities and {calibration.bound.rows:,} rows"
    say(f"for {size}; more than twice as many need a new one")


def _estimate(value: Estimate | None, form: str) -> str:
    if value is None:
        return ""
    return f"{form.format(value.value)} ({form.format(value.low)} to {form.format(value.high)})"
