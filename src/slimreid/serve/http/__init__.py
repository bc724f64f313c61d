"""The HTTP side of the service: routes put together, requests checked and limited, errors as problems."""
