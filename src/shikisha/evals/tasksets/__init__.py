"""Tasksets: where the tasks of an evaluation or a training come from.

`taskset_loader` goes from a name to a Taskset, and has the layouts of rows (add yours there),
`task_rows` reads files and the hub; `recorded` makes tasks of an outcome log. Sets of programs and patches come with
`plugins/code`. The sets themselves are not part of the package: they are read from local files or, when a name says
so, by the `datasets` library. Prompts are part of task hashes and must not change. `config`, plug-ins and benchmarks
may import it.
"""
