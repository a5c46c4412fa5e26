"""Frozen dataclasses to and from plain data, and `name=value` settings on top of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from .errors import InputError, require

Config = TypeVar("Config")


def to_plain(config: Any) -> dict[str, Any]:
    """The config as JSON-ready dictionaries and lists."""
    return asdict(config)


def from_plain(kind: type[Config] | UnionType, plain: Any, source: str = "config", prefix: str = "") -> Config:
    """The frozen dataclass that `plain` describes; every wrong or unknown name is reported with its path, after `prefix`.

    Of a union of dataclasses, also inside another one, the `kind` in the plain data chooses one; without it, it is the first.
    """
    from pydantic import TypeAdapter, ValidationError

    chosen = _chosen(kind, plain, f"{source}: {prefix}")
    unknown = sorted(_unknown(chosen, plain, prefix))
    if unknown:
        names = ", ".join(setting_names(chosen, prefix))
        raise InputError(f"{source}: unknown name {', '.join(unknown)}; the names are {names}")
    if isinstance(plain, Mapping):
        types = get_type_hints(chosen)
        plain = {
            name: from_plain(types[name], value, source, f"{prefix}{name}.") if _members(types[name]) else value
            for name, value in plain.items()
        }
    try:
        return TypeAdapter(chosen).validate_python(plain)
    except ValidationError as error:
        first = error.errors()[0]
        where = (prefix + ".".join(str(part) for part in first["loc"])).rstrip(".")
        own = first.get("ctx", {}).get("error")  # a check of ours says itself what it got
        cause = own or f"{first['msg']}; got {repr(first['input'])[:200]}"
        raise InputError(f"{source}: {where + ': ' if where and not own else ''}{cause}".replace("\n", " ")) from None


def require_types(config: Any) -> None:
    """Check that every field of a config has the type, or is one of the choices, that its annotation says."""
    from pydantic import ValidationError

    for name, adapter in _adapters(type(config)).items():
        value = getattr(config, name)
        try:
            adapter.validate_python(value, strict=True)
        except ValidationError as error:
            raise InputError(f"{name}: {error.errors()[0]['msg']}; got {value!r}") from None


@cache
def _adapters(kind: type) -> dict[str, Any]:
    from pydantic import TypeAdapter

    return {name: TypeAdapter(hint) for name, hint in get_type_hints(kind).items()}


def setting_names(kind: Any, prefix: str = "") -> list[str]:
    """The dotted names of all values of a config class or instance."""
    names = []
    for field in fields(kind):
        value = getattr(kind, field.name, None)
        default = value if value is not None else (field.default_factory() if callable(field.default_factory) else field.default)
        if is_dataclass(default):
            names += setting_names(default, f"{prefix}{field.name}.")
        else:
            names.append(prefix + field.name)
    return names


def with_settings(config: Config, settings: Iterable[str]) -> Config:
    """A copy of the config with `name=value` settings applied, names dotted: network.latent_size=64."""
    plain = to_plain(config)
    names = setting_names(config)
    for setting in settings:
        name, equals, text = setting.partition("=")
        require(bool(equals), f"a setting has the form name=value; got {setting!r}")
        require(name in names, f"unknown setting {name!r}; the names are {', '.join(names)}")
        *groups, last = name.split(".")
        level = plain
        for group in groups:
            level = level[group]
        level[last] = _parsed(text, level[last])
    return from_plain(type(config), plain, "setting")


def _parsed(text: str, current: Any) -> Any:
    """Text as the user typed it: a comma-separated list where the value is a tuple, else left to the type of the field."""
    if isinstance(current, (tuple, list)):
        return [part for part in text.split(",") if part]
    return text


def _members(kind: Any) -> tuple[Any, ...]:
    """The dataclasses of a union of dataclasses."""
    members = get_args(kind) if isinstance(kind, UnionType) else ()
    return members if all(map(is_dataclass, members)) else ()


def _chosen(kind: Any, plain: Any, where: str) -> Any:
    """The member of a union of dataclasses that plain data are of; any other `kind` as it is."""
    members = _members(kind)
    named = plain.get("kind") if isinstance(plain, Mapping) else None
    if not members or named is None:
        return members[0] if members else kind
    kinds = [getattr(member, "kind", None) for member in members]
    require(named in kinds, f"{where}kind must be one of {', '.join(name for name in kinds if name)}; got {named!r}")
    return members[kinds.index(named)]


def _unknown(kind: Any, plain: Any, prefix: str = "") -> list[str]:
    """The dotted names in plain data that the dataclass `kind`, or those in the tuple `kind`, do not have."""
    found = []
    if is_dataclass(kind) and isinstance(plain, Mapping):
        types = get_type_hints(kind)
        for name, value in plain.items():
            found += _unknown(types[name], value, f"{prefix}{name}.") if name in types else [f"{prefix}{name}"]
    elif get_origin(kind) is tuple and isinstance(plain, (list, tuple)):
        for number, value in enumerate(plain):
            found += _unknown(get_args(kind)[0], value, f"{prefix}{number}.")
    return found
