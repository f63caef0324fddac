"""The embedded orchestra: real small tools, two simulated models, and questions that can be checked. No key needed.

Read in this order. `values` and `world`: what there is to know. `wording`, `operation`, `families`: kinds of work, and
how they are spoken of. `question`, `grammar`: a question as parts, and as text. `cast`, `extras`, `edition`: who plays,
and what each edition draws from. `shapes`, `arrangements`, `pools`, `tasks`: what is drawn. `instructions`, `scene`,
`tools`, `players`: what workers understand and do. `compose`, `odds`, `optimal`, `reading`, `rules`, `yardsticks`: what
conductors are held against. `thought`, `forms`, `lessons`, `encore`: a warm start. `trials`, `demo`: rehearsing it all.

Invariant: all of it is a function of seeds, names and words; a rehearsal can be repeated to the letter. What is
simulated says so: the models' names, and the slips, drawn by lot at each worker's nominal skill on top of real work.
"""
