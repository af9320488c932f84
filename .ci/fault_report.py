"""Results of the fault tests as JSON, from pytest's XML.

python .ci/fault_report.py [--add] REPORT.xml ... RESULT.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

OUTCOMES = ("failure", "error", "skipped")


def summarise(reports: Iterable[str], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the tests of some reports: how often each ran, how often it passed, and its seconds.

    Each run of random faults is listed by its seed, replaces an older one, and has what it records,
    and so is each other run that records something, by its parameters.

    Args:
        reports: pytest's XML.
        before: a result to add to.
    """
    tests: dict[str, dict[str, Any]] = dict((before or {}).get("tests", {}))
    for report in reports:
        for case in ElementTree.fromstring(report).iter("testcase"):  # noqa: S314  # pytest's own
            _count(tests, case)
    return {"date": date.today().isoformat(), "tests": dict(sorted(tests.items()))}


def _count(tests: dict[str, dict[str, Any]], case: ElementTree.Element) -> None:
    outcome = next((name for name in OUTCOMES if case.find(name) is not None), "passed")
    name, _, seed = case.attrib["name"].rstrip("]").partition("[")
    seconds = round(float(case.attrib["time"]), 1)
    test = tests.setdefault(name, {"runs": 0, "passed": 0, "seconds": 0.0})
    recorded = {each.attrib["name"]: each.attrib["value"] for each in case.iter("property")}
    if seed.isdigit() or (seed and recorded):
        key = "by_seed" if seed.isdigit() else "by_case"
        by_seed = test.setdefault(key, {})
        by_seed[seed] = {"outcome": outcome, "seconds": seconds, **recorded}
        test[key] = dict(sorted(by_seed.items(), key=lambda item: (len(item[0]), item[0])))
        test["runs"] = len(by_seed)
        test["passed"] = sum(run["outcome"] == "passed" for run in by_seed.values())
        test["seconds"] = round(sum(run["seconds"] or 0.0 for run in by_seed.values()), 1)
    else:
        test["runs"] += 1
        test["passed"] += outcome == "passed"
        test["seconds"] = round(test["seconds"] + seconds, 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--add", action="store_true", help="to what the result has")
    arguments = parser.parse_args()
    target: Path = arguments.result
    kept = json.loads(target.read_text("utf-8")) if arguments.add else None
    texts = [path.read_text("utf-8") for path in arguments.reports]
    target.write_text(json.dumps(summarise(texts, kept), indent=2) + "\n", "utf-8")
