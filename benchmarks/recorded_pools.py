"""The pools of the recorded answers: thirteen workers of MMLU-Pro, and all of ZeroEval but eight."""

MP13 = (
    "gpt4o@hist",
    "gemini-1.5-pro-002",
    "gemini-1.5-flash-002",
    "Meta-Llama-3_1-70B-Instruct",
    "jamba-1.5-large",
    "Qwen1.5-72B-Chat",
    "Meta-Llama-3_1-8B-Instruct",
    "Phi-3-mini-4k-instruct",
    "Mixtral-8x7B-Instruct-v0.1",
    "mathstral-7B",
    "c4ai-command-r-v01",
    "gemma-7b",
    "Mistral-7B-Instruct-v0.2",
)
NOT_ZE21 = (
    "o1-mini-2024-09-12",
    "Athene-70B",
    "reka-core-20240501",
    "Yi-1.5-34B-Chat",
    "gpt-4o-2024-05-13",
    "claude-3-5-sonnet-20240620",
    "Meta-Llama-3-70B-Instruct",
    "Meta-Llama-3-8B-Instruct",
)
