// The tab Structured: the same text with an exact rule and without it.

import { failed, post, waiting } from "./api.js";
import { $, make, number } from "./dom.js";
import { buttons } from "./examples.js";

// A rule that begins with a brace is a JSON schema; any other is a regular expression.
function parsed(rule) {
  if (!rule.trim().startsWith("{")) return { pattern: rule };
  try {
    return { schema: JSON.parse(rule) };
  } catch (error) {
    throw new TypeError(`The schema is not JSON: ${error.message}.`);
  }
}

const TYPES = {
  object: (value) => typeof value === "object" && value !== null && !Array.isArray(value), array: Array.isArray, string: (value) => typeof value === "string",
  integer: Number.isInteger, number: (value) => typeof value === "number", boolean: (value) => typeof value === "boolean", null: (value) => value === null,
};

// Says what is wrong with a value under a schema, for the keywords of the examples; null if nothing is.
function flaw(value, schema, name = "it") {
  if (schema.enum && !schema.enum.includes(value)) return `${name} is not one of ${schema.enum.join(", ")}`;
  if (schema.type && ![].concat(schema.type).some((type) => TYPES[type]?.(value))) return `${name} is not of type ${schema.type}`;
  if (value < schema.minimum || value > schema.maximum) return `${name} is out of range`;
  if (value?.length > schema.maxLength || value?.length < schema.minLength) return `${name} has the wrong length`;
  const missing = (schema.required ?? []).find((key) => !(key in Object(value)));
  if (missing) return `${missing} is missing`;
  for (const [key, part] of Object.entries(schema.properties ?? {})) {
    const inner = key in Object(value) ? flaw(value[key], part, key) : null;
    if (inner) return inner;
  }
  return null;
}

// What breaks the rule in a text; null if it is obeyed.
function broken(text, { pattern, schema }) {
  if (pattern !== undefined) return new RegExp(`^(?:${pattern})$`, "su").test(text) ? null : "it does not match the pattern";
  try {
    return flaw(JSON.parse(text), schema);
  } catch {
    return "it is not JSON";
  }
}

async function write(box, body, rule, ruled) {
  const note = (text) => box.replaceChildren(make("p", { class: "note" }, text));
  note("Writing …");
  try {
    const { choices: [{ text }] } = await post("/v1/completions", ruled ? { ...body, diffusion: rule } : body, (event) => note(waiting(event)));
    const reason = broken(text, rule);
    box.replaceChildren(make("p", { class: "text" }, text || "(nothing)"), make("p", { class: reason ? "error verdict" : "good verdict" }, reason ? `✗ Breaks the rule: ${reason}.` : "✓ Obeys the rule."));
  } catch (error) {
    box.replaceChildren(failed(error));
  }
}

function run() {
  let rule;
  try {
    rule = parsed($("rule").value);
  } catch (error) {
    $("ruled").replaceChildren(make("p", { class: "error", role: "alert" }, error.message));
    return;
  }
  const tokens = number("rule-tokens"), body = { model: $("model").value, prompt: $("rule-prompt").value, seed: number("rule-seed") ?? 0, ...(tokens ? { max_tokens: tokens } : {}) };
  write($("ruled"), body, rule, true);
  write($("unruled"), body, rule, false);
}

function choose([, prompt, rule]) {
  [$("rule-prompt").value, $("rule").value] = [prompt, rule];
}

// Offers the examples of the chosen model, and begins with the first.
export function adapt({ structured }, about) {
  buttons($("rule-examples"), structured, (each) => { choose(each); $("structured-form").requestSubmit(); });
  choose(structured[0]);
  $("rule-tokens").value = about.length === null ? 60 : "";
}

export function setUp() {
  $("structured-form").addEventListener("submit", (event) => { event.preventDefault(); run(); });
}
