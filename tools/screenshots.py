"""Pictures of pages for the docs: `python tools/screenshots.py RELEASE [--spec SPEC]`, into docs/figures.

The page of a release folder light, dark and as it is printed, and the page of a plan. Needs Chromium. Look at them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from chromium import chromium, media, missing, picture
from dpjoin.auto.plan import plan
from dpjoin.auto.plan_page import plan_page
from dpjoin.released.files import report_of
from dpjoin.spec.toml import Spec

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
SHOW = """
document.documentElement.style.scrollBehavior = "auto";
for (const [id, name] of arguments[0]) {
  const control = document.getElementById(id);
  control.value = [...control.options].find((o) => o.text === name).value;
  control.dispatchEvent(new Event("change"));
}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("release", type=Path, help="the folder that `dpjoin demo` writes")
    parser.add_argument("--spec", type=Path, default=ROOT / "src" / "dpjoin" / "data" / "demo.toml")
    asked = parser.parse_args()
    if why := missing():
        print(why)
        return 1
    spec = Spec.from_toml(asked.spec)
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        page, planned = Path(folder) / "report.html", Path(folder) / "plan.html"
        page.write_text(report_of(asked.release), encoding="utf-8")
        planned.write_text(plan_page(spec, plan(spec, degree=40), degree=40), encoding="utf-8")
        shown = (
            ("report-light.png", page, {"scheme": "light"}, [["show", "carrier"], ["by", "distance"]], 1200, 2350),
            ("report-dark.png", page, {"scheme": "dark"}, [["show", "delay"], ["by", "origin"], ["kind", "Lines"]],
             1200, 2350),
            ("report-print.png", page, {"kind": "print"}, [["show", "carrier"]], 794, 2246),
            ("plan.png", planned, {"scheme": "light"}, [], 1200, 2250),
        )  # fmt: skip
        for name, where, how, choices, width, height in shown:
            media(browser, **how)
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get(where.as_uri())
            browser.execute_script(SHOW, choices)
            picture(browser, FIGURES / name, width=width, height=height)
            print(f"{name}: {(FIGURES / name).stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
