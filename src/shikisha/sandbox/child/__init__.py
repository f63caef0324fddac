"""The inner side of the process sandbox: the fork server, the confinement, and what runs one program.

Invariant: these modules need nothing but the standard library and each other. They start alone, as the package `child`
without its parents, in an interpreter that sees nothing else of ours, and travel into containers as text; that is why
imports here are relative. Only `sandbox.process_sandbox` and `sandbox.container` use this package. Deliberately absent:
decisions about what code may use (they come with each run from outside), and secrets.
"""
