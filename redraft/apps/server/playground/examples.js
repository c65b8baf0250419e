// Texts that make sense for the open model: English for models that know it, short texts for models of a corpus with attributes, and
// nothing but settings for others, whose words the page does not know.

import { $, make } from "./dom.js";

const LEFT = "The order of an autoregressive model: the picture shows a diagonal.";
const FEW = "Many tokens per network call: faster, but tokens written together may not fit together.";
const PERSON = { type: "object", properties: { name: { type: "string", minLength: 1, maxLength: 12 }, age: { type: "integer", minimum: 1, maximum: 99 }, student: { type: "boolean" } }, required: ["name", "age", "student"] };
const ANSWER = { enum: ["yes", "no", "unknown"] };

// fields: what stands in them at first. write: name, text, settings, explanation. structured: name, prompt, rule.
const KINDS = {
  english: {
    fields: {
      text: "She opened the [[1]] and left.", wrong: "I relly like teh weather tody.", question: "The capital of France is [[?]].", answers: "London\nParis\nRome",
      same: "The old man [[6]] and sat down on the bench.", clean: "The old man walked to the park and sat down on a bench.",
    },
    write: [
      ["One hole", "She opened the [[1]] and left.", {}, "The word is chosen by the text on both sides."],
      ["Two holes", "The [[1]] barked at the [[1]] all night.", {}, "Both holes are filled together, each given the words on both sides."],
      ["A range", "She [[1-3]] the letter and began to cry.", {}, "The model first chooses the number of tokens in the hole."],
      ["A prompt", "Once upon a time", { tokens: 30 }, "From a prompt this model writes left to right, which it does best."],
      ["By diffusion", "Once upon a time", { tokens: 24, sampler: "ancestral" }, "The same model as a diffusion model: all positions at once, in any order. It has learned to fill holes, so long texts come out rough."],
      ["A rule", "Her phone number is ", { tokens: 12, pattern: "[0-9]{3}-[0-9]{4}" }, "A constraint: the new text always matches the pattern, whatever the network predicts."],
    ],
    structured: [
      ["A person", "Describe a person as JSON, with name, age and whether they are a student:\n", JSON.stringify(PERSON, null, 1)],
      ["An answer", "Question: Is the Earth round? Answer as JSON: ", JSON.stringify(ANSWER)],
      ["A date", "The first day of the year 2024, written as year-month-day, is ", "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"],
    ],
  },
  attributes: {
    fields: {
      text: "One winter day,", wrong: "One spirng day, Anna flet sad and wlaked to thegarden.", question: "One spring day, Anna felt [[?]] and walked", answers: "lonely\nsad\ntired",
      same: "One winter day,", clean: "One autumn Saturday, Jonas felt worried and walked to the harbour. He made a brown doll behind the boats.",
    },
    write: [
      ["From nothing", "", {}, "All positions at once, in any order: names and verbs may appear before the words around them."],
      ["A prompt", "One winter day,", {}, "The prompt is underlined; the model writes everything after it, but not from left to right."],
      ["Two holes", "One spring day, [[4]] walked to the [[1]].", {}, "Both holes are filled together, each given the words on both sides."],
      ["The end first", "[[30]] At home, Anna felt sad no more.", {}, "The end is given, and the model writes a beginning that leads to it."],
      ["Any length", "One summer day, Clara felt [[*]] walked to the forest.", {}, "The model first chooses the number of tokens in the hole."],
      ["Most confident first", "One winter day,", { sampler: "confidence" }, "Nearly certain words are written first, open choices last."],
      ["Left to right", "One winter day,", { sampler: "left-to-right" }, LEFT],
      ["Eight steps", "One winter day,", { steps: 8 }, FEW],
      ["Two words", "", { required: "kite, harbour" }, "A constraint: both words always appear, whatever the network predicts."],
    ],
    structured: [
      ["A sad hero", "", "One winter day, (Anna|Clara|Ida) felt (sad|lonely) .*"],
      ["Three sentences", "", "[A-Z][a-z ,]+[.] [A-Z][a-zA-Z ,]+[.] [A-Z][a-zA-Z ,]+[.]"],
      ["A last word", "One spring day,", ".* no more[.]"],
    ],
  },
  own: {
    fields: { text: "", wrong: "", question: "", answers: "", same: "", clean: "" },
    write: [
      ["From nothing", "", {}, "All positions at once, in any order."],
      ["Most confident first", "", { sampler: "confidence" }, "Nearly certain tokens are written first, open choices last."],
      ["Left to right", "", { sampler: "left-to-right" }, LEFT],
      ["Eight steps", "", { steps: 8 }, FEW],
    ],
    structured: [["No digits", "", "[^0-9]*"]],
  },
};

export const kindOf = (about) => (about.attributes?.who ? "attributes" : about.length === null ? "english" : "own");

// Fills the fields that still hold an example, and returns the examples of a model's kind.
export function adapt(about) {
  const kind = KINDS[kindOf(about)];
  for (const [id, text] of Object.entries(kind.fields)) {
    if (Object.values(KINDS).some(({ fields }) => fields[id] === $(id).value)) $(id).value = $(id).defaultValue = text;
  }
  return kind;
}

// Puts a button for each example into a box.
export const buttons = (box, examples, choose) => box.replaceChildren(...examples.map((each) => make("button", { type: "button", onclick: () => choose(each) }, each[0])));
