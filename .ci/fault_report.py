"""Results of the fault tests as JSON, from pytest's XML.

python .ci/fault_report.py REPORT.xml RESULT.json
"""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

OUTCOMES = ("failure", "error", "skipped")


def summarise(report: str) -> dict[str, Any]:
    """Return the tests of a report: how often each ran, with which outcomes, and its seconds.

    What they recorded besides is a list of all runs.
    """
    tests: dict[str, dict[str, Any]] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):  # noqa: S314  # pytest wrote it
        found = [name for name in OUTCOMES if case.find(name) is not None]
        name = case.attrib["name"].partition("[")[0]
        test = tests.setdefault(name, {"runs": 0, "passed": 0, "seconds": 0.0})
        test["runs"] += 1
        test["passed"] += not found
        test["seconds"] = round(test["seconds"] + float(case.attrib["time"]), 1)
        for each in case.iter("property"):
            test.setdefault(each.attrib["name"], []).append(each.attrib["value"])
    return {"date": date.today().isoformat(), "tests": dict(sorted(tests.items()))}


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    result = json.dumps(summarise(source.read_text("utf-8")), indent=2)
    target.write_text(result + "\n", "utf-8")
