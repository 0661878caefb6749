"""The language of the package: public docstrings are complete, names have one meaning, citations have references."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest
from numpydoc.validate import validate

import fillin
import fillin_studies

REPOSITORY = Path(__file__).parents[1]
FILES = sorted(path for package in (fillin, fillin_studies) for path in Path(package.__file__).parent.rglob("*.py"))
# Checks of numpydoc: a summary that is a sentence, every parameter with type and description, results, an example.
CHECKS = {
    "GL03", "GL08", "SS03", "SS06", "PR01", "PR02", "PR03", "PR04", "PR05", "PR06", "PR07", "PR10", "RT01", "RT03",
    "EX01",
}  # fmt: skip


def methods_of(name: str) -> list[str]:
    """Dotted names of the documented methods of a public class that its own module or package defines."""
    value = getattr(fillin, name)
    if not isinstance(value, type):
        return []
    return [
        f"fillin.{name}.{method}"
        for method, function in vars(value).items()
        if not method.startswith("_") and callable(getattr(function, "__func__", function))
    ]


@pytest.mark.parametrize("name", fillin.__all__)
def test_public_docstrings_are_complete(name):
    problems = [
        f"{target}: {code} {text}"
        for target in (f"fillin.{name}", *methods_of(name))
        for code, text in validate(target)["errors"]
        if code in CHECKS and not (code == "EX01" and target.count(".") > 1)
    ]
    assert not problems, "\n".join(problems)


def test_a_class_name_has_one_meaning():
    places = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_docstrings_open_with_a_noun_or_a_verb(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            docstring = ast.get_docstring(node)
            name = getattr(node, "name", path.stem)
            assert not re.match(r"(Of|What|It) ", docstring or ""), f"{name}: {docstring}"


def test_the_walks_name_what_exists():
    """Every file and name of the two walks in CONTRIBUTING.md is defined where it says."""
    steps = re.findall(r"^\d+\. `([\w/]+\.py)`, (.*?):", (REPOSITORY / "CONTRIBUTING.md").read_text(), flags=re.M)
    assert len(steps) == 22 + 14
    for file, names in steps:
        tree = ast.parse((Path(fillin.__file__).parent / file).read_text())
        for name in re.findall(r"`([\w.]+)`", names):
            node = tree
            for part in name.split("."):
                node = next((child for child in node.body if getattr(child, "name", "") == part), None)
                assert node is not None, f"{file} does not define {name}"


CITATION = re.compile(r"(?<!& )\b([A-ZÉ][\wé-]+)(?: et al\.| &\s+[A-Z][\wé-]+)? \(?((?:19|20)\d\d[ab]?)\b")


def test_every_citation_has_a_reference():
    references = (REPOSITORY / "docs" / "references.md").read_text()
    entries = re.findall(r"^- ([A-ZÉ][\wé-]+),.*?\((\d{4}[ab]?)\)", references, flags=re.M | re.S)
    known = set(entries) | {(author, year[:4]) for author, year in entries}
    cited = {(author, year, path.name) for path in FILES for author, year in CITATION.findall(path.read_text())}
    assert {entry for entry in cited if entry[:2] not in known} == set()
