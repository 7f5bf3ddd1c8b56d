"""What a provider package offers the program: its name, its own settings, and how it is built.

A plug-in is found by the entry point group `pykarpenter.providers` (`runtime/plugins.py` looks it up): the entry
names a class without arguments that satisfies `ProviderPlugin`. The API and clock are type parameters because this
layer knows neither; the program always passes `kube.contract.KubeApi` and `runtime.clock.Clock`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pykarpenter.cloud.permissions import Permission
from pykarpenter.cloud.provider import CloudProvider

ApiT = TypeVar("ApiT", contravariant=True)
ClockT = TypeVar("ClockT", contravariant=True)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `--flag` beats the environment variable, which beats the default.

    `parse` turns text into the value and raises ValueError with what it expects; `default` is text too, so that the
    table in the documentation and the program cannot disagree.
    """

    flag: str
    env: str
    default: str
    help: str
    parse: Callable[[str], Any] = str
    # A flag that may stand without a value (`--enable-profiling`).
    is_switch: bool = False

    @property
    def value_of_default(self) -> Any:
        return self.parse(self.default)


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """Work that a provider does beside answering calls, such as simulated kubelets; it runs until cancelled."""

    name: str
    run: Callable[[], Awaitable[None]]
    # Most background work writes, so it runs only while this process leads.
    leader_only: bool = True


@dataclass(frozen=True, slots=True)
class BuiltProvider:
    """A provider ready for use and the background work that belongs to it."""

    provider: CloudProvider
    background: Sequence[BackgroundTask] = field(default_factory=tuple)


class ProviderPlugin(Protocol[ApiT, ClockT]):
    """The class an entry point names."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The provider's own flags and variables; they join the program's."""
        ...

    def permissions(self, settings: Mapping[str, Any]) -> tuple[Permission, ...]:
        """The RBAC rights that the provider's own calls need with these settings, beyond the controllers'."""
        ...

    async def build(self, api: ApiT, clock: ClockT, settings: Mapping[str, Any]) -> BuiltProvider:
        """The provider; `settings` holds the parsed values of its own settings by flag name.

        Raises ValueError for settings that contradict each other or name files that cannot be used.
        """
        ...
