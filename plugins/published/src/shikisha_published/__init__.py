"""What benchmarks and routing projects publish: tasksets, and answers of many models.

`published_layouts` has the tasksets: AIME, GPQA-Diamond, GSM8K, MATH-500, MMLU, MMLU-Pro and RLPR. `benchmark_results`
imports answers of MMLU-Pro and ZeroEval, `router_benchmarks` those of LLMRouter, RouteLLM and RouterBench. They come to
Shikisha through the entry point groups `shikisha.tasksets` and `shikisha.importers`.
"""
