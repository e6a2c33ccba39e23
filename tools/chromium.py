"""Chromium without a window, driven by selenium: for the browser tests and for pictures of pages."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--window-size=1200,900",
)


def missing() -> str:
    """Why no browser can be driven here; empty if one can."""
    if not any(map(shutil.which, BROWSERS)):
        return "no Chromium was found (Debian: apt-get install chromium chromium-driver)"
    if shutil.which("chromedriver") is None:
        return "no chromedriver was found (Debian: apt-get install chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed (pip install -e '.[dev]')"
    return ""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser with a profile of its own, which is gone afterwards."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    profile = tempfile.mkdtemp(prefix="dpjoin-chromium-")
    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def media(driver: Any, *, scheme: str = "light", kind: str = "screen") -> None:
    """Show pages as on a screen or on paper, light or dark."""
    feature = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": feature})


def picture(driver: Any, to: Path, *, width: int = 1200, height: int | None = None) -> None:
    """The page, or the upper part of it, as a PNG."""
    import base64

    tall = height or driver.execute_script("return document.documentElement.scrollHeight")
    box = {"x": 0, "y": 0, "width": width, "height": tall, "scale": 1}
    size = {"width": width, "height": tall, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": box, "captureBeyondViewport": True})
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    to.write_bytes(base64.b64decode(taken["data"]))
