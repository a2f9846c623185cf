// What is typed becomes requests, one for each chosen run, and their answers cards. An answer counts only while it is
// the answer to what stands in the text field: each change begins a new round and gives up the one before.

import { Card } from "./answer.js";

const PAUSE = 250; // milliseconds without a key before the text is sent
const ALTERNATIVES = 4;
const CHOSEN_AT_FIRST = 3;

const field = document.getElementById("text");
const status = document.getElementById("status");
const announcement = document.getElementById("announcement");
const answers = document.getElementById("answers");
const runs = document.getElementById("runs");
const direction = document.getElementById("direction");

let models = [];
const cards = new Map(); // by name of the run, in the order of `models`
let round = 0;
let timer = 0;
let giveUp = new AbortController();

start();

async function start() {
  try {
    models = await ask("models");
  } catch (error) {
    status.textContent = error.message;
    return;
  }
  const directions = [...new Set(models.map(directionOf))];
  for (const each of directions) direction.add(new Option(each));
  document.getElementById("direction-choice").hidden = directions.length < 2;
  direction.addEventListener("change", chooseDirection);
  field.addEventListener("input", (event) => event.isComposing || translateSoon());
  field.addEventListener("compositionend", translateSoon);
  chooseDirection();
}

function directionOf(model) {
  return `${model.source.name} → ${model.target.name}`;
}

function chooseDirection() {
  const fitting = models.filter((model) => directionOf(model) === direction.value);
  document.title = `${direction.value} – nmt`;
  document.querySelector("h1").textContent = direction.value;
  document.getElementById("text-label").textContent = fitting[0].source.name;
  field.lang = fitting[0].source.code;
  runs.querySelectorAll("label").forEach((label) => label.remove());
  runs.hidden = fitting.length < 2;
  fitting.forEach((model, place) => {
    const box = Object.assign(document.createElement("input"), { type: "checkbox", value: model.name });
    box.checked = place < CHOSEN_AT_FIRST;
    box.addEventListener("change", () => { showCards(); translate(); });
    const label = document.createElement("label");
    label.append(box, model.name);
    runs.append(label);
  });
  showCards();
  translate();
}

// One card for each chosen run. One that stays keeps what it shows.
function showCards() {
  const chosen = [...runs.querySelectorAll("input:checked")].map((box) => box.value);
  for (const [name, card] of cards) if (!chosen.includes(name)) { card.element.remove(); cards.delete(name); }
  for (const name of chosen) {
    if (!cards.has(name)) cards.set(name, new Card(models.find((model) => model.name === name)));
    answers.append(cards.get(name).element);
  }
}

function translateSoon() {
  clearTimeout(timer);
  abandon();
  timer = setTimeout(translate, PAUSE);
}

function abandon() {
  round += 1;
  giveUp.abort();
  giveUp = new AbortController();
}

async function translate() {
  clearTimeout(timer);
  abandon();
  const own = round;
  const text = field.value;
  if (!text.trim()) {
    for (const card of cards.values()) card.clear();
    status.textContent = cards.size ? "" : "Choose a run.";
    announcement.textContent = "";
    return;
  }
  status.textContent = cards.size ? "Translating …" : "Choose a run.";
  const heard = [];
  await Promise.all([...cards.values()].map(async (card) => {
    card.wait();
    try {
      const found = await ask("translate", requestFor(card.model, text));
      if (own !== round) return;
      card.show(found.lines, cards.size === 1);
      heard.push(cards.size > 1 ? `${card.model.name}: ${found.translatedText}` : found.translatedText);
    } catch (error) {
      if (own === round) { card.fail(error.message); heard.push(`${card.model.name}: ${error.message}`); }
    }
  }));
  if (own !== round) return;
  if (cards.size) status.textContent = "";
  announcement.textContent = heard.join(". ");
}

function requestFor(model, text) {
  return {
    q: text,
    source: model.source.code,
    target: model.target.code,
    model: model.name,
    alternatives: ALTERNATIVES,
    scores: true,
    alignments: model.attends,
  };
}

// The answer as an object. Throws an error with a sentence for people.
async function ask(path, body) {
  const options = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(path, { ...options, signal: giveUp.signal });
  } catch {
    throw new Error("The server does not answer.");
  }
  const found = await answer.json().catch(() => ({ error: `The server answered ${answer.status}.` }));
  if (!answer.ok) throw new Error(found.error);
  return found;
}
