"""Empty containers that remember that the field was absent rather than written as `{}` or `[]`.

The NodePool hash tells the two apart. As defaults of a wire type they read like any empty container, and msgspec
leaves them out when it encodes, since it compares a value with its default by identity.
"""

from __future__ import annotations

from typing import Any, NoReturn


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("an absent field is shared by all objects and cannot be changed")


class _AbsentMap(dict[Any, Any]):
    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse


class _AbsentList(list[Any]):
    __setitem__ = __delitem__ = __iadd__ = append = extend = insert = pop = remove = clear = sort = reverse = _refuse


ABSENT_MAP: dict[Any, Any] = _AbsentMap()
ABSENT_LIST: list[Any] = _AbsentList()


def is_absent(value: object) -> bool:
    return isinstance(value, (_AbsentMap, _AbsentList))
