"""The list of promises and the tests that hold them stay in step."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load_script():
    spec = importlib.util.spec_from_file_location("promises", ROOT / "scripts" / "promises.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["promises"] = module
    spec.loader.exec_module(module)
    return module


def project(tmp_path, rows, test):
    (tmp_path / "docs" / "promises").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "docs" / "promises" / "x.md").write_text("| ID | Promise |\n|---|---|\n" + rows)
    (tmp_path / "tests" / "test_x.py").write_text(test)
    return tmp_path


def test_every_id_used_in_a_test_is_defined():
    """A mark with a typing error would hold nothing."""
    assert load_script().collect(ROOT).errors == []


def test_unknown_id_is_an_error_that_names_the_place(tmp_path):
    """The writer must find the mark at once."""
    root = project(tmp_path, "", 'import pytest\n\n\n@pytest.mark.promise("API-9.9")\ndef test_a(): ...\n')
    assert load_script().collect(root).errors == ["tests/test_x.py:4: API-9.9 is in no table of docs/promises"]


def test_promise_without_a_test_fails_only_when_strict(tmp_path, capsys):
    """Tables may be written before the code; the list shows what is missing."""
    root = project(tmp_path, "| API-1.1 | holds |\n| API-1.2 | open |\n", 'x = pytest.mark.promise("API-1.1")\n')
    script = load_script()
    assert script.main(["--root", str(root)]) == 0
    assert script.main(["--root", str(root), "--strict"]) == 1
    assert "no test: API-1.2 open" in capsys.readouterr().out


def test_promise_defined_twice_is_an_error(tmp_path):
    """Two texts under one id would let one of them go untested."""
    root = project(tmp_path, "| API-1.1 | one |\n| API-1.1 | two |\n", "")
    assert load_script().collect(root).errors == ["x.md:4: API-1.1 is defined twice"]
