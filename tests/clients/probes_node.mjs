// Probes of Node clients: the openai SDK and the Vercel AI SDK; a line of JSON for each.
const base = process.env.SHIKISHA_URL;
const key = process.env.SHIKISHA_KEY;
const question = "Which city is the capital of France, and how many people live there?";
const messages = [{ role: "user", content: question }];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

function expect(found) {
  if (!found) throw new Error(`not as wanted: ${found}`);
}

async function openai() {
  const { default: OpenAI } = await import("openai");
  return new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });
}

async function anthropic() {
  const { createAnthropic } = await import("@ai-sdk/anthropic");
  return createAnthropic({ baseURL: base, apiKey: key })("shikisha");
}

async function vercel() {
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  return createOpenAICompatible({ name: "shikisha", baseURL: base, apiKey: key, supportsStructuredOutputs: true })("shikisha");
}

const probes = {
  "openai-node: chat": async () => {
    const said = await (await openai()).chat.completions.create({ model: "shikisha", messages });
    expect(said.choices[0].message.content.includes("Paris"));
  },
  "openai-node: chat, streamed": async () => {
    let text = "";
    for await (const part of await (await openai()).chat.completions.create({ model: "shikisha", messages, stream: true }))
      text += part.choices[0]?.delta?.content ?? "";
    expect(text.includes("Paris"));
  },
  "openai-node: runTools": async () => {
    const tool = { type: "function", function: { name: "population", description: "People of a city.", parameters, parse: JSON.parse, function: () => "2100000" } };
    const runner = (await openai()).chat.completions.runTools({ model: "shikisha", messages, tools: [tool] });
    expect((await runner.finalContent()).includes("2100000"));
  },
  "openai-node: responses": async () => {
    expect((await (await openai()).responses.create({ model: "shikisha", input: question })).output_text.includes("Paris"));
  },
  "Vercel AI SDK: generateText": async () => {
    const { generateText } = await import("ai");
    expect((await generateText({ model: await vercel(), prompt: question })).text.includes("Paris"));
  },
  "Vercel AI SDK: streamText": async () => {
    const { streamText } = await import("ai");
    let text = "";
    for await (const part of streamText({ model: await vercel(), prompt: question }).textStream) text += part;
    expect(text.includes("Paris"));
  },
  "Vercel AI SDK: tools": async () => {
    const { generateText, tool, jsonSchema, stepCountIs } = await import("ai");
    const population = tool({ description: "People of a city.", inputSchema: jsonSchema(parameters), execute: async () => "2100000" });
    const said = await generateText({ model: await vercel(), prompt: question, tools: { population }, stopWhen: stepCountIs(3) });
    expect(said.text.includes("2100000"));
  },
  "Vercel AI SDK: structured output": async () => {
    const { generateText, Output, jsonSchema } = await import("ai");
    const schema = jsonSchema({ type: "object", properties: { name: { type: "string" }, people: { type: "number" } }, required: ["name", "people"], additionalProperties: false });
    const said = await generateText({ model: await vercel(), prompt: question, output: Output.object({ schema }) });
    expect(said.output.name === "Paris");
  },
  "Vercel AI SDK: Anthropic's provider": async () => {
    const { generateText } = await import("ai");
    expect((await generateText({ model: await anthropic(), prompt: question })).text.includes("Paris"));
  },
  "Vercel AI SDK: Anthropic's provider, streamed with tools": async () => {
    const { streamText, tool, jsonSchema, stepCountIs } = await import("ai");
    const population = tool({ description: "People of a city.", inputSchema: jsonSchema(parameters), execute: async () => "2100000" });
    let text = "";
    for await (const part of streamText({ model: await anthropic(), prompt: question, tools: { population }, stopWhen: stepCountIs(3) }).textStream)
      text += part;
    expect(text.includes("2100000"));
  },
};

for (const [name, probe] of Object.entries(probes)) {
  let said = { probe: name, result: "works" };
  try {
    await probe();
  } catch (error) {
    const missing = error?.code === "ERR_MODULE_NOT_FOUND";
    said = { probe: name, result: missing ? "skipped" : "fails", why: `${error}`.slice(0, 600) };
  }
  console.log(JSON.stringify(said));
}
