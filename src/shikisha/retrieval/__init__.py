"""Retrieval: one index and one learned ranker for tools, memory, skills and files.

`text_index` finds candidates by words (BM25F), `ranker` orders them by what outcomes taught, `fit_ranker` fits it, and
`dense` adds a user's own embedding model. Reading order: as named. Needs numpy; fitting needs scikit-learn.
"""
