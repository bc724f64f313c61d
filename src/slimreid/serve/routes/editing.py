"""Changes that people make to the gallery: each says first what it would do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from slimreid.errors import ConfigError
from slimreid.gallery import editing
from slimreid.gallery.errors import GalleryError
from slimreid.gallery.store.contract import Store
from slimreid.gallery.store.rows import Filter
from slimreid.serve.access import Who, require_role
from slimreid.serve.kept_images import erase_images
from slimreid.serve.previews import make_change
from slimreid.serve.routes.common import AnyService, Editor
from slimreid.serve.schemas.changes import Assign, Change, Merge, Preview, Remove, Rename, Split, Undo
from slimreid.serve.service import Service

router = APIRouter(tags=["changes"])


@router.post("/identities/rename")
async def rename(service: AnyService, who: Editor, given: Rename) -> Change:
    """Give an identity another name."""
    return await _change(service, given, lambda s: editing.rename(s, given.old, given.new, who.name))


@router.post("/identities/merge")
async def merge(service: AnyService, who: Editor, given: Merge) -> Change:
    """Make several identities one."""
    return await _change(service, given, lambda s: editing.merge(s, given.identities, given.into, who.name))


@router.post("/identities/split")
async def split(service: AnyService, who: Editor, given: Split) -> Change:
    """Make some rows of an identity another one."""
    return await _change(service, given, lambda s: editing.split(s, given.rows, given.new, who.name))


@router.post("/rows/assign")
async def assign(service: AnyService, who: Editor, given: Assign) -> Change:
    """Give rows identities."""
    return await _change(service, given, lambda s: editing.assign(s, given.identities, who.name))


@router.post("/rows/remove")
async def remove(service: AnyService, who: Editor, given: Remove) -> Change:
    """Take rows out of the gallery; with `forget` (admin) erase them for good."""
    if given.forget:
        require_role(who, "admin")
    if bool(given.rows) == bool(given.identities):
        raise ConfigError("say either which rows or which identities")
    which = Filter(ids=given.rows or None, identities=given.identities or None)
    if not given.forget:
        return await _change(service, given, lambda s: editing.remove(s, which, who.name))
    return await service.in_thread(_forget, service, which, who, given.dry_run)


def _forget(service: Service, which: Filter, who: Who, dry_run: bool) -> Change:
    with service.writing:
        gone = service.store.rows(Filter(ids=which.ids, identities=which.identities, removed=None))
        change = make_change(service.store, "forget", lambda s: editing.forget(s, which, who.name), dry_run)
        if not dry_run:
            erase_images(service.settings.images, service.store, gone)
    return change


@router.post("/undo")
async def undo(service: AnyService, who: Editor, given: Undo) -> Change:
    """Undo the last changes, whoever made them."""

    def edit(store: Store) -> int | None:
        last = service.store.log(1, undoable=True)
        if given.expect is not None and (not last or last[0].id != given.expect):
            raise GalleryError(
                f"entry {given.expect} is not the last change any more; look at the log and try again"
            )
        editing.undo(store, given.steps, who.name)
        newest = service.store.log(1)
        return newest[0].id if newest else None

    return await _change(service, given, edit)


async def _change(service: Service, given: Preview, edit: Callable[[Store], Any]) -> Change:
    """Do an edit, whose form has its name."""

    def work() -> Change:
        with service.writing:
            return make_change(service.store, type(given).__name__.lower(), edit, given.dry_run)

    return await service.in_thread(work)
