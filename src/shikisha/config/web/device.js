// Decides on the device: a trained conductor and the table of a learned policy, run by ONNX Runtime in WebAssembly.
// As `conductors.trained_model` does it: the compact prompt, a word-level tokenizer, greedy decoding, a strict reader.
// A text that is no plan, and a task with too many unknown words, is a reason to ask the policy, and then the server.
// `ask` is the one place that sends anything; it refuses a private task.
import * as ort from "./ort.wasm.min.mjs";

ort.env.logLevel = "error";
ort.env.wasm.numThreads = 1; // no SharedArrayBuffer, so any static host will do
ort.env.wasm.wasmPaths = new URL("./", import.meta.url).href;

const SPACES = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/gu; // Python's
const oneLine = text => text.replace(SPACES, " ").trim();
const file = name => fetch(new URL(name, import.meta.url));

class Tokenizer {
  constructor(read) {
    this.words = new Map(Object.entries(read.model.vocab));
    this.texts = [...this.words].sort((a, b) => a[1] - b[1]).map(([word]) => word);
    this.unknown = this.words.get(read.model.unk_token);
    this.pattern = new RegExp(read.pre_tokenizer.pattern.Regex, "gu");
    this.steps = (read.normalizer.normalizers || [read.normalizer]).map(step => step.type === "Lowercase"
      ? text => text.toLowerCase()
      : text => text.replace(new RegExp(step.pattern.Regex || step.pattern.String, "gu"), step.content));
  }
  encode(text) {
    for (const step of this.steps) text = step(text);
    return Array.from(text.matchAll(this.pattern), found => this.words.get(found[0]) ?? this.unknown);
  }
}

// A plan of the three lists at the end of a text; null for anything else.
const PLAN = /(?:^|\n)model_id = \[([0-9, ]+)\]\nsubtasks = \[((?:"[^"\\\n]*"(?:, )?)+)\]\naccess_list = \[(.*)\]$/u;
export function readPlan(text, workers, most) {
  const found = PLAN.exec(text);
  if (!found) return null;
  let model, subtasks, access;
  try {
    [model, subtasks, access] = found.slice(1).map(part => JSON.parse(`[${part}]`));
  } catch { return null; }
  const whole = model.length === subtasks.length && model.length === access.length && model.length <= most;
  if (!whole || !model.every(each => Number.isInteger(each) && each < workers)) return null;
  const earlier = (list, step) => Array.isArray(list) && (list.length === 1 && list[0] === "all" && step > 0
    || list.every(each => Number.isInteger(each) && each >= 0 && each < step));
  if (!access.every(earlier) || !subtasks.every(each => each.trim())) return null;
  return model.map((worker, step) => ({ worker, subtask: subtasks[step],
    access: access[step][0] === "all" ? [...Array(step).keys()] : access[step] }));
}

export class Device {
  static async open() {
    const [pool, read] = await Promise.all(["pool.json", "tokenizer.json"].map(name => file(name).then(got => got.json())));
    const made = new Device();
    Object.assign(made, { pool, facts: pool.model, tokenizer: new Tokenizer(read), followers: new Map() });
    const load = async name => ort.InferenceSession.create(await (await file(name)).arrayBuffer());
    made.model = await load("model.onnx");
    made.policy = pool.policy ? await load("policy.onnx") : null;
    await made.decide({ text: "warm up", private: true }); // the first run of a session compiles
    return made;
  }

  // What becomes of a task {text, private, type}: {where, workers, plan, by, why, ms}; nothing is sent or performed.
  async decide(task) {
    const begun = performance.now();
    const offered = this.pool.workers.filter(each => each.device || !task.private);
    const made = await this.conduct(task, offered) || await this.byPolicy(task, offered);
    const done = { ...made, ms: performance.now() - begun };
    if (done.workers.length) done.where = done.workers.every(each => each.device) ? "device" : "server";
    else done.where = task.private ? "nowhere" : "server";
    return done;
  }

  async conduct(task, offered) {
    const lines = [`ask ${oneLine(task.text)}`, ...offered.map((each, place) => `${place} ${each.level} ${each.description}`)];
    const parts = [[task.text, 4], [offered.map(each => each.description).join(" "), 1], [[...lines, "plan\n"].join("\n"), 1]];
    for (const [text, times] of parts) {
      const tokens = this.tokenizer.encode(text);
      const unknown = tokens.filter(each => each === this.facts.unknown).length;
      if (unknown > times * this.facts.unknown_share * tokens.length) return null;
    }
    const prompt = this.tokenizer.encode(parts[2][0]);
    const room = Math.min(this.facts.plan_tokens, this.facts.context - prompt.length);
    const text = await this.generate(prompt, room, sofar => readPlan(sofar, offered.length, this.facts.steps));
    const plan = text && readPlan(text, offered.length, this.facts.steps);
    if (!plan) return null;
    const steps = plan.map(step => ({ ...step, worker: offered[step.worker].name }));
    const workers = [...new Set(plan.map(step => offered[step.worker]))];
    return { by: "conductor", plan: steps, text, workers, why: "the conductor on this device planned it" };
  }

  // Greedy, several tokens a run: tokens that followed such words before are drafted, and kept only as far as the model
  // itself would have written them (speculative decoding), so the text is the same and takes a third of the runs.
  async generate(prompt, room, complete) {
    const { layers, heads, depth } = this.facts.caches;
    const none = () => new ort.Tensor("float32", new Float32Array(0), [1, heads, 0, depth]);
    const names = Array.from({ length: layers }, (_, layer) => [`${layer}.key`, `${layer}.value`]).flat();
    let held = names.map(none), read = 0, feed = prompt, text = "";
    const written = prompt.slice(-3);
    for (let left = room; left > 0;) {
      const end = read + feed.length;
      const whole = (values, shape) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
      const out = await this.model.run({
        ...Object.fromEntries(names.map((name, place) => [`past_key_values.${name}`, held[place]])),
        input_ids: whole(feed, [1, feed.length]),
        attention_mask: whole(Array(end).fill(1), [1, end]),
        position_ids: whole(Array.from(feed, (_, place) => read + place), [1, feed.length]) });
      const unseen = feed.length - out.logits.dims[1]; // rows that the graph leaves out
      let row = read ? 0 : feed.length - 1, token = bestToken(out.logits, row - unseen);
      const kept = [];
      for (;;) {
        kept.push(token);
        left -= 1;
        if (this.facts.ends.includes(token)) return text;
        this.learn(written, token);
        text += this.tokenizer.texts[token] ?? "";
        if (text.endsWith("]") && complete(text)) return text;
        if (!read || left <= 0 || feed[row + 1] !== token) break;
        token = bestToken(out.logits, ++row - unseen);
      }
      read += row + 1;
      held = names.map(name => shortened(out[`present.${name}`], heads, read, depth));
      feed = [token, ...this.draft([...written], Math.min(this.pool.rows - 1, left - 1, this.facts.context - read - 1))];
    }
    return null;
  }

  learn(written, token) {
    this.followers.set(written.join(), token);
    this.followers.set(written.slice(1).join(), token);
    written.shift();
    written.push(token);
  }

  draft(written, most) {
    const found = [];
    while (found.length < most) {
      const next = this.followers.get(written.join()) ?? this.followers.get(written.slice(1).join());
      if (next === undefined) break;
      found.push(next);
      written = [...written.slice(1), next];
    }
    return found;
  }

  async byPolicy(task, offered) {
    const none = { by: "nobody", plan: [], workers: [], why: "neither the conductor nor the policy knows such tasks" };
    if (!this.policy) return none;
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

function bestToken(logits, row) {
  const size = logits.dims[2], from = row * size, all = logits.data;
  let best = 0;
  for (let token = 1; token < size; token++) if (all[from + token] > all[from + best]) best = token;
  return best;
}

// A cache [1, heads, P, depth] without what was read after the first `most` tokens.
function shortened(cache, heads, most, depth) {
  const there = cache.dims[2];
  if (there === most) return cache;
  const found = new Float32Array(heads * most * depth);
  for (let head = 0; head < heads; head++)
    found.set(cache.data.subarray(head * there * depth, (head * there + most) * depth), head * most * depth);
  return new ort.Tensor("float32", found, [1, heads, most, depth]);
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
