"""The scripts of the examples, imported."""

import importlib.util
import sys
from types import ModuleType

from paths import ROOT


def example(name: str) -> ModuleType:
    """Import a script of the examples."""
    path = ROOT / "examples" / name
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
