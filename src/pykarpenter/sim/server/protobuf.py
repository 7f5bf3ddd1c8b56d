"""Reads objects that clients send as protobuf, into the JSON values they mean.

kubectl's typed commands (`create deployment`, `create namespace`) send them so. Answers are always JSON, which every
client takes. Go writes empty values of plain fields out, where JSON leaves them away: empty text reads as absent.
"""

from __future__ import annotations

import base64
import gzip
import struct
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from pykarpenter.api.timestamps import format_micro_timestamp, format_timestamp
from pykarpenter.kube.errors import BadRequest
from pykarpenter.sim.schema.kubernetes import definition_name

Json = dict[str, Any]
_Fields = list[tuple[int, Any]]

DATA_FILE = files("pykarpenter.sim.schema") / "data" / "protobuf.json.gz"
MAGIC = b"k8s\x00"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@cache
def _messages() -> dict[str, dict[int, tuple[str, str, str]]]:
    with DATA_FILE.open("rb") as data:
        found = msgspec.json.decode(gzip.decompress(data.read()))
    return {name: {int(key): tuple(field) for key, field in fields.items()} for name, fields in found.items()}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and raw value of each field."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        value: Any
        if kind == _VARINT:
            value, at = _varint(data, at)
        elif kind == _BYTES:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
            if len(value) != length:
                raise ValueError("a field is cut off")
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"unknown wire type {kind}")
        yield tag >> 3, value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "string": lambda value: value.decode(),
    "bytes": lambda value: base64.b64encode(value).decode(),
    "bool": bool,
    "int32": _signed,
    "int64": _signed,
    "uint32": int,
    "uint64": int,
    "double": lambda value: struct.unpack("<d", value)[0],
    "float": lambda value: struct.unpack("<f", value)[0],
}


def _time(write: Callable[[float], str]) -> Callable[[bytes], str | None]:
    def read(data: bytes) -> str | None:
        found = dict(_fields(data))
        seconds = _signed(found.get(1, 0))
        # Go's zero time lies before year one and means "not set".
        return write(seconds + found.get(2, 0) / 1e9) if seconds > 0 else None

    return read


def _int_or_string(data: bytes) -> int | str:
    found = dict(_fields(data))
    return str(found.get(3, b"").decode()) if found.get(1, 0) else _signed(found.get(2, 0))


def _raw_json(data: bytes) -> Any:
    found = dict(_fields(data)).get(1, b"")
    return msgspec.json.decode(found) if found else None


SPECIAL: dict[str, Callable[[bytes], Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": lambda data: dict(_fields(data)).get(1, b"0").decode(),
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _raw_json,
    f"{_META}.FieldsV1": _raw_json,
    f"{_META}.Time": _time(format_timestamp),
    f"{_META}.MicroTime": _time(format_micro_timestamp),
}


def _value(kind: str, raw: Any) -> Any:
    if kind in _SCALARS:
        return _SCALARS[kind](raw)
    if kind in SPECIAL:
        return SPECIAL[kind](raw)
    return _message(kind, raw)


def _entry(kind: str, raw: bytes) -> tuple[str, Any]:
    """One entry of a map: key and value are fields 1 and 2."""
    found = dict(_fields(raw))
    empty: Any = b"" if kind not in ("bool", "int32", "int64") else 0
    return found.get(1, b"").decode(), _value(kind, found.get(2, empty))


def _message(name: str, data: bytes) -> Json:
    known = _messages().get(name)
    if known is None:
        raise ValueError(f"nothing is known of {name}")
    result: Json = {}
    for number, raw in _fields(data):
        if number not in known:
            continue
        field, kind, how = known[number]
        if how == "list":
            result.setdefault(field, []).append(_value(kind, raw))
        elif how == "map":
            key, value = _entry(kind, raw)
            result.setdefault(field, {})[key] = value
        elif how == "inline":
            result |= _message(kind, raw)
        elif (value := _value(kind, raw)) not in ("", None):
            result[field] = value
    return result


def decode(body: bytes) -> Json:
    """The object in a protobuf body; raises BadRequest."""
    try:
        if not body.startswith(MAGIC):
            raise ValueError("it does not begin with the Kubernetes prefix")
        envelope = dict(_fields(body[len(MAGIC) :]))
        kind_fields = dict(_fields(envelope.get(1, b"")))
        api_version, kind = kind_fields.get(1, b"").decode(), kind_fields.get(2, b"").decode()
        group, _, version = api_version.rpartition("/")
        name = f"{_META}.DeleteOptions" if kind == "DeleteOptions" else definition_name(group, version, kind)
        if name is None:
            raise ValueError(f"nothing is known of {kind} in {api_version}")
        return {"apiVersion": api_version, "kind": kind, **_message(name, envelope.get(2, b""))}
    except (ValueError, TypeError, IndexError, AttributeError, msgspec.DecodeError, struct.error) as error:
        raise BadRequest(f"the body of the request is not readable as protobuf: {error}; send JSON") from error
