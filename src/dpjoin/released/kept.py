"""A release that is kept until its folder is written, so that a full disk does not cost a second budget.

What is kept is public: the manifest and the model, which is all that `load` reads, and what else belongs in the folder.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from dpjoin.released.files import MANIFEST, MODEL, arrays_of, manifest_of
from dpjoin.released.release import Release

SUFFIX = ".unwritten"


def keep(release: Release, name: str, folders: Iterable[Path], texts: Mapping[str, str]) -> Path | None:
    """Write what is needed to the first of some folders that takes it; None if none does."""
    files = {MANIFEST: json.dumps(manifest_of(release)), **texts}
    for folder in folders:
        kept = _free(folder / f"{name}{SUFFIX}")
        try:
            kept.mkdir()
            np.savez_compressed(kept / MODEL, **arrays_of(release))
            for file, text in files.items():
                (kept / file).write_text(text, encoding="utf-8")
            for path in [*(kept / file for file in (MODEL, *files)), kept]:
                _on_disk(path)
        except OSError:
            shutil.rmtree(kept, ignore_errors=True)
        except BaseException:
            shutil.rmtree(kept, ignore_errors=True)
            raise
        else:
            return kept
    return None


def texts_of(kept: Path) -> dict[str, str]:
    """What else belongs in the folder."""
    texts = (file for file in sorted(kept.iterdir()) if file.name not in (MANIFEST, MODEL))
    return {file.name: file.read_text(encoding="utf-8") for file in texts}


def forget(kept: Path | None) -> None:
    """Remove what was kept, and nothing else."""
    if kept is not None and kept.suffix == SUFFIX:
        shutil.rmtree(kept, ignore_errors=True)


def _free(folder: Path) -> Path:
    count, found = 1, folder
    while found.exists():
        count += 1
        found = folder.with_name(f"{folder.stem}-{count}{SUFFIX}")
    return found


def _on_disk(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
