"""Findings of many files as JUnit XML, which most CI systems show."""

from __future__ import annotations

from xml.etree import ElementTree

from spark_vllm_docker.findings import Severity
from spark_vllm_docker.ui.reports import Found
from spark_vllm_docker.ui.words import say_finding


def render_junit(found: Found) -> str:
    """One test case for each file; errors are failures, the rest is its output."""
    failures = sum(any(f.severity is Severity.ERROR for f in rows) for rows in found.values())
    attributes = {"name": "spark-recipe check", "tests": str(len(found)), "failures": str(failures)}
    suite = ElementTree.Element("testsuite", attributes)
    for file, findings in found.items():
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": "recipes", "name": str(file)}
        )
        errors = [say_finding(f) for f in findings if f.severity is Severity.ERROR]
        others = [say_finding(f) for f in findings if f.severity is not Severity.ERROR]
        if errors:
            failure = ElementTree.SubElement(
                case, "failure", {"message": errors[0].splitlines()[0]}
            )
            failure.text = "\n".join(errors)
        if others:
            ElementTree.SubElement(case, "system-out").text = "\n".join(others)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
