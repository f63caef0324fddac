// The openai SDK for Node against Shikisha: a chat, a streamed chat, a response.
import OpenAI from "openai";

const question = process.env.SHIKISHA_QUESTION
  ?? "What is 9 times 939?";
const client = new OpenAI({ baseURL: process.env.SHIKISHA_URL, apiKey: process.env.SHIKISHA_KEY });
const messages = [{ role: "user", content: question }];

const chat = await client.chat.completions.create({ model: "shikisha", messages });
console.log("chat:", chat.choices[0].message.content);

let streamed = "";
for await (const chunk of await client.chat.completions.create({ model: "shikisha", messages, stream: true })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
console.log("streamed:", streamed);

const response = await client.responses.create({ model: "shikisha", input: question });
console.log("response:", response.output_text);
