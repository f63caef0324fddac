"""Retrieval: one index and one learned ranker for tools, memory, skills and files, and one encoder of texts.

`text_index` finds candidates by words (BM25F), `ranker` orders them by what outcomes taught, `tools.tool_judgments`
fits it, and `text_encoder` turns texts into vectors (`encoder.onnx`; `encoder.md` is its card). Reading order: as
named. Needs numpy; fitting needs scikit-learn, and the encoder onnxruntime.
"""
