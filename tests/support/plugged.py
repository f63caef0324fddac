"""Shows the plug-ins of this tree to a test's process and to those that it starts, as if they were installed here.

What is installed may be another tree's, or nothing; a test is of the tree that it stands in.
"""

import os
import sys
import tomllib
from pathlib import Path

from paths import ROOT


def install(place: Path, folder: Path) -> None:
    """Write a plug-in's metadata into a folder, as an installation would; `place` has its pyproject.toml."""
    project = tomllib.loads((place / "pyproject.toml").read_text())["project"]
    known = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    known.mkdir(parents=True, exist_ok=True)
    (known / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project.get("entry-points", {}).items()
    lines = [f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in own.items()) for group, own in groups]
    (known / "entry_points.txt").write_text("\n".join(lines))


def show_plugins(folder: Path) -> None:
    """Put the plug-ins of this tree on the path of this process and of its children."""
    places = sorted(each.parent for each in ROOT.glob("plugins/*/pyproject.toml"))
    for place in places:
        install(place, folder)
    added = [str(folder), *(str(place / "src") for place in places)]
    sys.path[:0] = added
    os.environ["PYTHONPATH"] = os.pathsep.join([*added, *filter(None, [os.environ.get("PYTHONPATH")])])
