"""What the service takes and answers under `/v1`, as JSON; the contract that page and client are written to.

Images are sent as `multipart/form-data`. A part `rgb`, `nir` or `tir` (whatever modalities the model knows)
is an image of sample 0; `rgb.1`, `nir.1` … are of sample 1, and so on. Any subset of the modalities will do.
The other parts are the fields of a `...Form`; a list is a part that is there several times. A label
such as `identity` holds for all samples, `identity.1` for sample 1 alone.

Everything that changes the gallery takes `dry_run`: the answer then says what would happen, and nothing does.
Errors are `application/problem+json`, see `Problem`; 401 = log in, 403 = your role does not allow it,
413 = too large, 422 = a field is wrong, 429 and 503 = too busy, try again after `Retry-After` seconds.
Times are seconds since 1970 (UTC); fields that take a time also take ISO 8601.
"""
