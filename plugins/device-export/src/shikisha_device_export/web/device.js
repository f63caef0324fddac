// Decides on the device: the table of a learned policy, run by ONNX Runtime in WebAssembly. A task that the policy does
// not know is for the server. `ask` is the one place that sends anything; it refuses a private task.
import * as ort from "./ort.wasm.min.mjs";

ort.env.logLevel = "error";
ort.env.wasm.numThreads = 1; // no SharedArrayBuffer, so any static host will do
ort.env.wasm.wasmPaths = new URL("./", import.meta.url).href;

const file = name => fetch(new URL(name, import.meta.url));

export class Device {
  static async open() {
    const made = new Device();
    made.pool = await (await file("pool.json")).json();
    made.policy = await ort.InferenceSession.create(await (await file("policy.onnx")).arrayBuffer());
    await made.decide({ text: "warm up", private: true }); // the first run of a session compiles
    return made;
  }

  // What becomes of a task {text, private, type}: {where, workers, plan, by, why, ms}; nothing is sent or performed.
  async decide(task) {
    const begun = performance.now();
    const offered = this.pool.workers.filter(each => each.device || !task.private);
    const made = await this.byPolicy(task, offered);
    const done = { ...made, ms: performance.now() - begun };
    if (done.workers.length) done.where = done.workers.every(each => each.device) ? "device" : "server";
    else done.where = task.private ? "nowhere" : "server";
    return done;
  }

  async byPolicy(task, offered) {
    const none = { by: "nobody", plan: [], workers: [], why: "the policy knows no worker that may do it" };
    const { workers, types, clusters, buckets } = this.pool.policy;
    const there = workers.map(name => offered.find(each => each.name === name));
    if (!there.some(Boolean)) return none;
    const feed = { available: new ort.Tensor("float32", Float32Array.from(there, each => each ? 0 : -1e30), [1, workers.length]) };
    if (clusters) feed.words = new ort.Tensor("float32", hashedWords(task.text, buckets), [1, buckets]);
    else {
      const type = types.indexOf(task.type || "");
      feed.type = new ort.Tensor("int64", BigInt64Array.from([BigInt(type < 0 ? types.length : type)]), [1]);
    }
    const worth = (await this.policy.run(feed)).worth.data;
    const chosen = there[worth.indexOf(Math.max(...worth))];
    const plan = [{ worker: chosen.name, subtask: task.text, access: [] }];
    return { by: "policy", plan, workers: [chosen], why: `the learned policy asks ${chosen.name} for such tasks` };
  }

  // Do what was decided: `local` are the device's workers, {name: async (subtask, task, granted) => answer}.
  async perform(task, decided, local, key = "") {
    if (decided.where === "nowhere") throw new Error("private: nobody on this device can do it, and it goes nowhere else");
    if (decided.where === "server")
      return ask(this.pool.server, task, key, decided.workers.filter(each => !each.device).map(each => each.name));
    const results = [];
    for (const step of decided.plan)
      results.push(await local[step.worker](step.subtask, task, step.access.map(place => results[place])));
    return { answer: results.at(-1), dollars: 0, where: "device" };
  }
}

// The one place that sends anything.
export async function ask(server, task, key, workers = []) {
  if (task.private) throw new Error("private: this task is sent nowhere");
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${key}` };
  if (workers.length) headers["X-Shikisha-Workers"] = workers.join(", "); // what was decided here holds there
  if (task.type) headers["X-Shikisha-Domain"] = task.type;
  const messages = [{ role: "user", content: task.text }];
  const answer = await fetch(`${server}/v1/chat/completions`, { method: "POST", headers,
    body: JSON.stringify({ model: "shikisha", messages }) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error ? told.error.message : `the server answered ${answer.status}`);
  const dollars = Number(answer.headers.get("x-shikisha-cost") || NaN);
  return { answer: told.choices[0].message.content, dollars, where: "server", run: answer.headers.get("x-shikisha-run-id") };
}

// As `routing.text_features.hash_prompts`: words and pairs of words, CRC-32, log counts, length 1.
export function hashedWords(text, buckets) {
  const words = text.slice(0, 20000).toLowerCase().match(/(?:(?![\d_])[\p{L}\p{N}]){2,}|\p{Nd}/gu) || [];
  const counts = new Map();
  for (const word of [...words, ...words.slice(1).map((word, place) => `${words[place]} ${word}`)])
    counts.set(word, (counts.get(word) || 0) + 1);
  const found = new Float32Array(buckets);
  for (const [word, count] of counts) found[crc32(new TextEncoder().encode(word)) % buckets] += 1 + Math.log(count);
  const length = Math.hypot(...found) || 1;
  return found.map(each => each / length);
}

const CRC = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});
function crc32(bytes) {
  let sum = ~0;
  for (const byte of bytes) sum = (sum >>> 8) ^ CRC[(sum ^ byte) & 255];
  return ~sum >>> 0;
}
