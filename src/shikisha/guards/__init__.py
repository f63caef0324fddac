"""Guards, one file a kind: a `...Settings` model, `build(settings, name)`, and a class with `before` and `after`.

`evidence` and `expression` are what they share: pure functions of what an agent was shown. A guard reads and never
writes; a probe is a tool that is known to read, and the engine calls it inside the run's budget and journal. Imports
the engine's ports only; `config` builds them.
"""
