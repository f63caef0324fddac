"""Importers: other people's records as outcome logs, a module for each kind of source.

An importer is a function of `Sources` and a `LogBuilder`, listed in `importer_registry` (add yours there). Invariant:
every row is imported, counted as left out, or an error that names file, line and field; what a source does not know
stays unknown. The command line imports the registry; nothing else may depend on a single importer but `journal_runs`.
"""
