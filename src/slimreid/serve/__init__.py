"""A gallery as a service: an HTTP interface for programs, a page for people."""
