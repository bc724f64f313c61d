"""A client of the service: the words of a gallery, over HTTP. Needs nothing but what reads images does."""

from slimreid.client.client import Client
from slimreid.client.results import Changed, EnrolledSample, Job
from slimreid.client.transport import ServerError, UnreachableError

__all__ = ["Changed", "Client", "EnrolledSample", "Job", "ServerError", "UnreachableError"]
