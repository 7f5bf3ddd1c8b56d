"""`pykarpenter validate`: every problem of manifests at once, offline, before they reach a cluster."""

from __future__ import annotations

import json
from typing import Any

import click

from pykarpenter.api.crds import DEFAULT_PROVIDER, PROVIDERS
from pykarpenter.api.validation import ERROR
from pykarpenter.cli.manifests import read_manifests
from pykarpenter.cli.validation.checks import Finding, Validator
from pykarpenter.cli.validation.fields import ABSENT
from pykarpenter.cli.validation.schemas import can_check_rules
from pykarpenter.cloud.catalog import CatalogError, read_catalog

# Longer values are cut in text; JSON has them whole.
_SHOWN = 60


@click.command("validate", help="Check manifests offline and list every problem; '-' reads standard input.")
@click.argument("files", nargs=-1, required=True)
@click.option("--provider", type=click.Choice(sorted(PROVIDERS)), default=DEFAULT_PROVIDER, show_default=True)
@click.option(
    "--catalog", metavar="FILE", help="Instance types (KWOK JSON, or demo) to judge requirements and limits by."
)
@click.option("--strict", is_flag=True, help="Exit 1 for warnings too.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(files: tuple[str, ...], provider: str, catalog: str | None, strict: bool, output: str) -> int:
    try:
        types = read_catalog(catalog) if catalog else None
    except CatalogError as error:
        raise click.BadParameter(str(error), param_hint="--catalog") from None
    if not can_check_rules():
        click.echo("CEL rules are not checked: install pykarpenter[embedded]", err=True)
    documents, unreadable = read_manifests(files)
    validator = Validator(provider, types)
    findings = validator.validate(documents, unreadable)
    skipped = sum(not validator.looks_at(document) for document in documents)
    failures = sum(finding.problem.severity == ERROR for finding in findings)
    if output == "json":
        shown = [_as_json(item) for item in findings]
        click.echo(json.dumps({"objects": len(documents), "skipped": skipped, "problems": shown}, indent=2))
    else:
        for finding in findings:
            click.echo(_as_text(finding))
        click.echo(_summary(len(documents) - skipped, skipped, failures, len(findings) - failures))
    return 1 if failures or (strict and findings) else 0


def _as_text(finding: Finding) -> str:
    problem = finding.problem
    parts = [f"{finding.where} {finding.object}".rstrip(), problem.severity]
    if problem.path:
        parts.append(problem.path)
    if value := _shown(problem.value):
        parts.append(value)
    return ": ".join([*parts, problem.message])


def _shown(value: Any) -> str:
    """The value in one line; objects too large for that are left out, their path is enough."""
    if value is ABSENT:
        return ""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= _SHOWN:
        return text
    return "" if isinstance(value, dict | list) else f"{text[: _SHOWN - 3]}..."


def _as_json(finding: Finding) -> dict[str, Any]:
    problem = finding.problem
    found: dict[str, Any] = {
        "file": finding.source,
        "document": finding.document,
        "object": finding.object,
        "severity": problem.severity,
        "path": problem.path,
        "message": problem.message,
    }
    if finding.item is not None:
        found["item"] = finding.item
    if problem.value is not ABSENT:
        found["value"] = json.loads(json.dumps(problem.value, default=str))
    return found


def _summary(objects: int, skipped: int, failures: int, warnings: int) -> str:
    checked = f"{objects} object{'' if objects == 1 else 's'} checked"
    if skipped:
        checked += f", {skipped} of other kinds skipped"
    if not failures and not warnings:
        return f"{checked}: no problems"
    return (
        f"{checked}: {failures} error{'' if failures == 1 else 's'}, {warnings} warning{'' if warnings == 1 else 's'}"
    )
