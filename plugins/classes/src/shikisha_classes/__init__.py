"""Classes of tasks with a proposed mode, found in a journal: `shikisha classes`, and `[autonomy] proposed`.

`task_classes` finds, judges and reads them, `commands` is the command. They come to Shikisha through the entry point
groups `shikisha.admissions` and `shikisha.commands`.
"""
