"""`slimreid embed`: features of many images, into one file or a folder of Parquet files."""

from __future__ import annotations

import time

from slimreid.cli.console import console, say, table
from slimreid.cli.options.images import EmbedOptions
from slimreid.extras import explain_missing
from slimreid.files import check_writable
from slimreid.inference.embedding_sets.files import check_suffix, refuse_other_file, write_embeddings
from slimreid.inference.features.embed_data import embed_data, open_images
from slimreid.inference.features.extract import Extraction
from slimreid.inference.load import load
from slimreid.inference.search import canonical_of
from slimreid.modalities import parse_subset


def embed(options: EmbedOptions) -> None:
    """Compute features of all images of a dataset or folder with a trained model."""
    if options.to_parquet:
        return _embed_to_parquet(options)
    check_suffix(options.out)
    check_writable(options.out)
    loaded = load(options.model, options.device, options.threads)
    if not options.overwrite:
        refuse_other_file(options.out, loaded.feature_fingerprint, options.feature)
    default = None if options.modality is None else canonical_of(loaded, options.modality)
    data, how = open_images(loaded, options.images, default, options.camera)
    chosen = parse_subset(options.modalities, loaded.modalities) if options.modalities else None
    started = time.monotonic()
    found, notes = embed_data(
        loaded,
        data,
        feature=options.feature,
        modalities=chosen,
        split=options.split,
        extraction=Extraction(
            cameras=options.camera_names,
            batch=options.batch,
            workers=options.workers,
            skip_broken=options.skip_broken or None,
        ),
    )
    seconds = time.monotonic() - started
    changed = write_embeddings(options.out, found, options.overwrite)
    rows: list[tuple[str, object]] = [("images", f"{options.images} ({how})")]
    if found.origin:
        rows.append(("origin", found.origin))
    rows += [
        ("samples", len(found)),
        ("identities", len(set(found.identities) - {""}) or "unknown"),
        ("modalities", "+".join(found.modalities)),
        ("feature", f"{found.feature}, {found.features.shape[1]:,} numbers"),
        ("model", found.fingerprint[:12]),
        ("samples/s", f"{len(found) / max(seconds, 1e-9):.1f}"),
    ]
    console.print(table(["embedding", ""], rows))
    for note in notes:
        say(f"note: {note}")
    say(f"{'written' if changed else 'unchanged'}: {options.out}")
    return None


def _embed_to_parquet(options: EmbedOptions) -> None:
    """Embed a manifest of any length into a folder of Parquet files."""
    with explain_missing():
        from slimreid.bulk.embed import EmbedChoices, embed_dataset
        from slimreid.bulk.pool import Pool
    found = embed_dataset(
        options.images,
        options.model,
        options.out,
        engine=options.engine,
        choices=EmbedChoices(
            feature=options.feature,
            modalities=options.modalities,
            split=options.split,
            cameras=options.camera_names,
            batch=options.batch,
            device=options.device,
            threads=options.threads,
        ),
        pool=Pool(options.address, options.actors, options.actor_cpus, options.actor_gpus),
    )
    if options.json:
        print(found.to_json(), end="")
        return
    rows: list[tuple[str, object]] = [("images", options.images), ("rows", found.rows)]
    rows += [(kind, n) for kind, n in sorted(found.statuses.items())]
    if found.new_rows:
        rows += [("embedded now", found.new_rows), ("rows/s", f"{found.rows_per_second:.1f}")]
    console.print(table(["embedding", ""], rows))
    say(f"{'written' if found.new_rows else 'complete already'}: {options.out}")
