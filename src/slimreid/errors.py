"""What goes wrong because of the user's data or options, as opposed to a bug of ours."""


class SlimReIDError(Exception):
    """Base of all errors a user can mend; the command line shows the message without a traceback."""


class DataError(SlimReIDError):
    """A file, row or folder is not what it should be; the message names it and the cure."""


class ConfigError(SlimReIDError):
    """An option is unknown, out of range or contradicts another; the message names the key."""


class ModelError(SlimReIDError):
    """Weights or inputs do not fit the model; the message names the key or shape."""


class TrainingError(SlimReIDError):
    """A run cannot go on; the message says where it stopped, what is left, and the cure."""


class SlimReIDWarning(UserWarning):
    """Something worth knowing that does not stop the work."""
