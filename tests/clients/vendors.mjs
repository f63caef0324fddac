// Reads what each door says with the zod schemas of Vercel's AI SDK: [door, streamed, values] by stdin, a count by stdout.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";

const prompt = [{ role: "user", content: [{ type: "text", text: "What is it like in Oslo?" }] }];
const tools = [{ type: "function", name: "get_weather", inputSchema: { type: "object", properties: {} } }];
const readers = {
  chat: (given) => [
    createOpenAI({ ...given }).chat("shikisha"),
    createOpenAICompatible({ name: "shikisha", baseURL: "http://localhost/v1", ...given })("shikisha"),
  ],
  messages: (given) => [createAnthropic({ ...given })("shikisha")],
  responses: (given) => [createOpenAI({ ...given }).responses("shikisha")],
};

let input = "";
for await (const part of process.stdin) input += part;
let count = 0;
for (const [door, streamed, values] of JSON.parse(input)) {
  const events = values.map((each) => `event: ${each.type ?? "message"}\ndata: ${JSON.stringify(each)}\n\n`).join("");
  const body = streamed ? events + (door === "chat" ? "data: [DONE]\n\n" : "") : JSON.stringify(values[0]);
  const headers = { "content-type": streamed ? "text/event-stream" : "application/json" };
  for (const model of readers[door]({ apiKey: "none", fetch: async () => new Response(body, { headers }) })) {
    const kinds = new Set();
    if (streamed) {
      for await (const part of (await model.doStream({ prompt, tools })).stream) {
        if (part.type === "error") throw new Error(`${door}, ${model.provider}: ${JSON.stringify(part.error)}`);
        kinds.add(part.type);
      }
    } else {
      for (const part of (await model.doGenerate({ prompt, tools })).content) kinds.add(part.type);
    }
    if (!["text", "tool-call", "text-delta"].some((kind) => kinds.has(kind)))
      throw new Error(`${door}, ${model.provider}: neither a text nor a call: ${[...kinds]}`);
    count += values.length;
  }
}
console.log(count);
