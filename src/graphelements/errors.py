"""The one exception for input that cannot be used."""


class InputError(ValueError):
    """What was wrong with an input and what to do about it, in one line; the command line prints it and exits with 2."""


def require(condition: bool, message: str) -> None:
    """Raise `InputError(message)` unless `condition` holds."""
    if not condition:
        raise InputError(message)


def choose(kind: str, name: str, choices) -> None:
    """Raise an `InputError` that lists `choices` unless `name` is one of them."""
    require(name in choices, f"{kind} must be one of {', '.join(map(str, choices))}; got {name!r}")
