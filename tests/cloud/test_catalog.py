"""Catalogues: the built-in KWOK one and files in its shape."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pykarpenter.api import labels
from pykarpenter.cloud.catalog import (
    INSTANCE_CPU,
    INSTANCE_FAMILY,
    INSTANCE_MEMORY,
    INSTANCE_SIZE,
    RESERVATION_ID,
    CatalogError,
    kwok_catalog,
    load_catalog,
    parse_entries,
    read_catalog,
)
from pykarpenter.cloud.catalog_entries import catalog_entries


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "name": "m5.large",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "2", "memory": "8Gi"},
        "offerings": [offering()],
        **changes,
    }


def offering(price: Any = 0.1, zone: str | None = "zone-1", **more: Any) -> dict[str, Any]:
    requirements = [{"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}]
    if zone:
        requirements.append({"key": labels.ZONE, "operator": "In", "values": [zone]})
    return {"Price": price, "Requirements": requirements, **more}


def test_kwok_has_144_types_with_eight_offerings_each() -> None:
    """The built-in catalogue is KWOK's: names, sizes and prices carry over."""
    types = {item.name: item for item in kwok_catalog()}
    assert len(types) == 144
    small = types["s-4x-arm64-linux"]
    assert small.capacity == {"cpu": 4000, "memory": 16 * 2**30, "pods": 64, "ephemeral-storage": 20 * 2**30}
    assert small.allocatable()["cpu"] == 3900
    assert len(small.offerings) == 8
    on_demand = {o.price for o in small.offerings if o.capacity_type == "on-demand"}
    assert on_demand == {0.025 * 4 + 0.001 * (16 * 2**30 / 1e9)}
    assert types["m-256x-amd64-windows"].capacity["pods"] == 1024


def test_labels_of_a_type_follow_its_name_and_size() -> None:
    """Users select on size, family, cpu and memory."""
    (item,) = parse_entries([entry()], "t").types
    wanted = {INSTANCE_SIZE: "large", INSTANCE_FAMILY: "m5", INSTANCE_CPU: "2", INSTANCE_MEMORY: "8Gi"}
    assert {key: min(item.requirements[key].values) for key in wanted} == wanted
    (plain,) = parse_entries([entry(name="weird")], "t").types
    assert min(plain.requirements[INSTANCE_SIZE].values) == "2"
    assert min(plain.requirements[INSTANCE_FAMILY].values) == "w"


def test_keys_are_case_insensitive_and_pods_default_to_110(tmp_path: Path) -> None:
    """Files written by other tools differ in case only."""
    path = tmp_path / "types.json.gz"
    path.write_bytes(gzip.compress(json.dumps([{k.upper(): v for k, v in entry().items()}]).encode()))
    (item,) = load_catalog(str(path))
    assert item.capacity["pods"] == 110
    assert item.offerings[0].price == 0.1


def test_b29_unusable_types_are_dropped_and_counted() -> None:
    """One bad type never costs the others."""
    bad = [entry(name="zero", resources={"cpu": "0"}), entry(name="bare", offerings=[]), entry(), entry()]
    catalog = parse_entries(bad, "t")
    assert [item.name for item in catalog.types] == ["m5.large"]
    assert catalog.dropped_types == 3
    assert any("occurs twice" in warning for warning in catalog.warnings)


@pytest.mark.parametrize("price", [-1, None, "EUR 3", float("nan")])
def test_b30_an_offering_without_a_usable_price_can_still_be_launched(price: Any) -> None:
    """An unknown price is not zero: the offering stays, without a price."""
    (item,) = parse_entries([entry(offerings=[offering(price)])], "t").types
    assert item.offerings[0].price is None
    assert item.offerings[0].launchable


def test_b31_an_offering_without_a_zone_is_dropped_with_a_warning() -> None:
    """No zone means that nobody could launch it."""
    catalog = parse_entries([entry(offerings=[offering(), offering(zone=None)])], "t")
    assert len(catalog.types[0].offerings) == 1
    assert catalog.dropped_offerings == 1
    assert labels.ZONE in catalog.warnings[0]


def test_reservations_carry_their_id_and_capacity() -> None:
    """Reserved offerings say how many machines are left."""
    reserved = {
        "Price": 0.0,
        "ReservationCapacity": 3,
        "Requirements": [
            {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["reserved"]},
            {"key": labels.ZONE, "operator": "In", "values": ["zone-1"]},
            {"key": RESERVATION_ID, "operator": "In", "values": ["r-1"]},
        ],
    }
    catalog = parse_entries([entry(offerings=[reserved])], "t")
    assert catalog.types[0].offerings[0].reservation_id == "r-1"
    assert catalog.types[0].offerings[0].reservation_capacity == 3
    assert RESERVATION_ID in catalog.label_rules.well_known


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "not JSON"),
        ("{}", "expected a list"),
        ('[{"name": "x", "resources": {"cpu": "-1"}}]', "negative"),
        ('[{"name": "x", "resources": {"cpu": "abc"}}]', "invalid quantity"),
        ('[{"resources": {}}]', "name"),
    ],
)
def test_a_broken_catalogue_names_the_place(tmp_path: Path, text: str, part: str) -> None:
    """The error tells where to look."""
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(CatalogError, match=part):
        read_catalog(str(path))


def test_devices_of_a_type_survive_a_recording() -> None:
    """A snapshot of the catalogue plans like the catalogue itself."""
    bindings = [{"attribute": "d/numa", "devices": [{"driver": "d", "device": "x"}, {"driver": "e", "device": "y"}]}]
    slices = [{"driver": "d", "devices": [{"name": "x", "capacity": {"memory": {"value": "1Gi"}}}]}]
    (item,) = parse_entries([entry(dynamicResources=slices, attributeBindings=bindings)], "t").types
    assert item.attribute_bindings[0].devices == (("d", "x"), ("e", "y"))
    (again,) = parse_entries(catalog_entries([item]), "t").types
    assert again.dynamic_resources == item.dynamic_resources and again.attribute_bindings == item.attribute_bindings
    with pytest.raises(CatalogError, match="attributeBindings"):
        parse_entries([entry(attributeBindings=[{"attribute": "d/numa"}])], "t")
