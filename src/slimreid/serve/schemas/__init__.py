"""What the service takes and answers under `/v1`, as JSON; the contract that page and client are written to.

Images are sent as `multipart/form-data`. A part `rgb`, `nir` or `tir` (whatever modalities the model knows)
is an image of sample 0; `rgb.1`, `nir.1` … are of sample 1, and so on. Any subset of the modalities will do.
The other parts are the fields of a `...Form` below; a list is a part that is there several times. A label
such as `identity` holds for all samples, `identity.1` for sample 1 alone.

| route                         | role   | takes                  | gives                                    |
|-------------------------------|--------|------------------------|------------------------------------------|
| GET    /v1/health             | anyone |                        | `Health`: the process answers            |
| GET    /v1/ready              | anyone |                        | `Health`, or 503 while it cannot work    |
| GET    /v1/session            | anyone |                        | `Session`: who am I, must I log in       |
| POST   /v1/session            | anyone | `Login`                | `Session`, and a cookie                  |
| DELETE /v1/session            | anyone |                        | `Session`; the cookie is gone            |
| GET    /v1/status             | viewer |                        | `Status`                                 |
| GET    /v1/metrics            | viewer |                        | Prometheus text                          |
| POST   /v1/embed              | viewer | images, `EmbedForm`    | `Embedded`                               |
| POST   /v1/search             | viewer | images, `SearchForm`   | `SearchResult`                           |
| POST   /v1/identify           | viewer | images, `IdentifyForm` | `IdentifyResult`, with ranked matches    |
| POST   /v1/patches            | viewer | images                 | `KeptPatches`, or 404 where not possible |
| GET    /v1/identities         | viewer | query, after, limit    | `IdentityPage`                           |
| GET    /v1/cameras            | viewer |                        | `CameraList`                             |
| GET    /v1/rows               | viewer | filter, after, limit   | `RowPage`                                |
| GET    /v1/rows/{id}          | viewer |                        | `Row`                                    |
| GET    /v1/rows/{id}/thumbnail | viewer | modality              | image/jpeg: all side by side, or one     |
| GET    /v1/rows/{id}/image    | viewer | modality               | image/jpeg, larger where the file is     |
| GET    /v1/clusters           | viewer | rate or threshold      | `ClusterList`                            |
| GET    /v1/log                | viewer | before, limit          | `LogPage`                                |
| GET    /v1/calibration        | viewer |                        | `Calibration`                            |
| POST   /v1/calibration        | admin  | `Calibrate`            | `Job` (202)                              |
| POST   /v1/enrol              | editor | images, `EnrolForm`    | `Enrolled` (201; 200 for a dry run)      |
| POST   /v1/identities/rename  | editor | `Rename`               | `Change`                                 |
| POST   /v1/identities/merge   | editor | `Merge`                | `Change`                                 |
| POST   /v1/identities/split   | editor | `Split`                | `Change`                                 |
| POST   /v1/rows/assign        | editor | `Assign`               | `Change`                                 |
| POST   /v1/rows/remove        | editor | `Remove`               | `Change`; `forget` needs an admin        |
| POST   /v1/undo               | editor | `Undo`                 | `Change`                                 |
| GET    /v1/jobs               | viewer |                        | `JobList`                                |
| POST   /v1/jobs               | editor | `NewJob`               | `Job` (201): an enrolment in many parts  |
| POST   /v1/jobs/{id}/samples  | editor | images, labels         | `Job` (202): kept, will be enrolled      |
| POST   /v1/jobs/{id}/finish   | editor |                        | `Job`: no more samples will come         |
| GET    /v1/jobs/{id}          | viewer |                        | `Job`                                    |
| GET    /v1/jobs/{id}/events   | viewer |                        | text/event-stream of `Job`s              |
| DELETE /v1/jobs/{id}          | editor |                        | `Job`: the rest is dropped               |

Everything that changes the gallery takes `dry_run`: the answer then says what would happen, and nothing does.
Errors are `application/problem+json`, see `Problem`; 401 = log in, 403 = your role does not allow it,
413 = too large, 422 = a field is wrong, 429 and 503 = too busy, try again after `Retry-After` seconds.
Times are seconds since 1970 (UTC); fields that take a time also take ISO 8601.
"""

from __future__ import annotations

from slimreid.serve.schemas import calibration, changes, enrolling, fields, rows, searching, service

__all__ = ["calibration", "changes", "enrolling", "fields", "rows", "searching", "service"]
