"""Importers of answers that benchmarks and routing projects publish: `shikisha import outcomes KIND`.

`benchmark_results` reads MMLU-Pro and ZeroEval, `router_benchmarks` LLMRouter, RouteLLM and RouterBench. They come to
Shikisha through the entry point group `shikisha.importers`.
"""
