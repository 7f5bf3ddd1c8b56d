"""Writes what the chart takes from the code: its roles from the permissions, its CRDs from the API's definitions.

`--check` writes nothing and fails when a file differs from what the code says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import yaml

from pykarpenter.api.crds import crds
from pykarpenter.cli.roles import namespaces, rules
from pykarpenter.cloud.permissions import OWN_NAMESPACE, Permission
from pykarpenter.controllers.permissions import CORE, GATES, LEASE_NAME, SETTINGS
from pykarpenter.runtime.feature_gates import GATES as ALL_GATES
from pykarpenter.runtime.plugins import load_plugin, provider_names

CHART = Path(__file__).parents[1] / "charts" / "pykarpenter"
ROLES = CHART / "templates" / "roles.yaml"
# The simulated cloud lives in the process that uses it and is never installed in a cluster.
NOT_INSTALLED = ("sim",)
# Rights that a setting of a provider adds: provider -> (setting's value in the chart, how to leave them out).
OPTIONAL = {"kwok": ('eq .Values.settings.kwokKubelets "builtin"', {"kwok-kubelets": "external"})}

# A condition of the chart, empty for always, and what is needed while it holds.
Section = tuple[str, Sequence[Permission]]


class _Block(yaml.SafeDumper):
    """Lists indented below their key, short lists on one line: as people write roles."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def sections() -> Iterator[Section]:
    yield "", CORE
    for gate in ALL_GATES:
        if gate.name in GATES:
            yield f".Values.settings.featureGates.{gate.name[0].lower()}{gate.name[1:]}", GATES[gate.name]
    yield ".Values.settings.nominatePods", SETTINGS["nominate-pods"]
    yield ".Values.settings.schedulerConfig", SETTINGS["scheduler-config"]
    yield "not .Values.settings.ignoreDRARequests", SETTINGS["ignore-dra-requests"]
    for name in provider_names():
        if name in NOT_INSTALLED:
            continue
        chosen, plugin = f'eq .Values.provider "{name}"', load_plugin(name)
        condition, without = OPTIONAL.get(name, ("", {}))
        least = plugin.permissions(without)
        yield chosen, least
        if condition:
            yield f"and ({chosen}) ({condition})", [item for item in plugin.permissions({}) if item not in least]


def _rules_text(permissions: Iterable[Permission]) -> str:
    text = yaml.dump(rules(permissions), Dumper=_Block, default_flow_style=None, sort_keys=False, width=200)
    own = "{{ .Values.settings.leaderElectionName | quote }}"
    return "".join(f"  {line}\n" for line in text.replace(LEASE_NAME, own).splitlines())


def _role(namespace: str) -> str:
    """One role with its binding; a role whose rules all depend on values is left out with them."""
    found = [(condition, [item for item in items if item.namespace == namespace]) for condition, items in sections()]
    found = [(condition, items) for condition, items in found if items]
    kind = "Role" if namespace else "ClusterRole"
    where = "{{ .Release.Namespace }}" if namespace == OWN_NAMESPACE else namespace
    metadata = '  name: {{ include "pykarpenter.fullname" . }}\n'
    if namespace:
        metadata += f"  namespace: {where}\n"
    metadata += '  labels:\n    {{- include "pykarpenter.labels" . | nindent 4 }}\n'
    metadata += "  {{- with .Values.additionalAnnotations }}\n"
    metadata += "  annotations:\n    {{- toYaml . | nindent 4 }}\n  {{- end }}\n"
    text = f"---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n{metadata}rules:\n"
    for condition, items in found:
        rendered = _rules_text(items)
        whole = condition and len(found) > 1
        text += f"  {{{{- if {condition} }}}}\n{rendered}  {{{{- end }}}}\n" if whole else rendered
    if not namespace:
        text += "  {{- with .Values.additionalClusterRoleRules }}\n  {{- toYaml . | nindent 2 }}\n  {{- end }}\n"
    text += f"---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Binding\nmetadata:\n{metadata}"
    text += f"roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n"
    text += '  name: {{ include "pykarpenter.fullname" . }}\n'
    text += 'subjects:\n  - kind: ServiceAccount\n    name: {{ include "pykarpenter.serviceAccountName" . }}\n'
    text += "    namespace: {{ .Release.Namespace }}\n"
    if len(found) == 1 and found[0][0]:
        text = f"{{{{- if {found[0][0]} }}}}\n{text}{{{{- end }}}}\n"
    return text


def files() -> dict[Path, str]:
    """Every generated file of the chart with its content."""
    places = namespaces(item for _, items in sections() for item in items)
    head = "{{- /* Written by scripts/chart_parts.py from the permissions that the code declares. */ -}}\n"
    made = {ROLES: head + "".join(_role(place) for place in places)}
    for manifest in crds():
        name = f"{manifest['spec']['group']}_{manifest['spec']['names']['plural']}.yaml"
        made[CHART / "crds" / name] = yaml.dump(manifest, Dumper=_Plain, sort_keys=False, width=120)
    return made


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def main() -> int:
    wanted = files()
    if "--check" in sys.argv:
        stale = [path.name for path, text in wanted.items() if not path.exists() or path.read_text() != text]
        if stale:
            print(f"the chart is behind the code ({', '.join(stale)}): run scripts/chart_parts.py")
        return bool(stale)
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
