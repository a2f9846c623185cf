// What one run made of the text. Each line has its translation and its source as words that can be pointed at, focused
// and walked through with the arrow keys, and its n-best list, of which one is shown above.

const LEAST_TOLD = 0.01;
const LEAST_FRAMED = 0.05; // smaller weights are shown by their shade alone
const MOST_TOLD = 3;
const percent = new Intl.NumberFormat("en", { style: "percent" });

export class Card {
  constructor(model) {
    this.model = model;
    this.element = create("article", "card");
    const title = create("h2", "", model.name);
    title.id = `run-${model.name}`;
    this.element.setAttribute("aria-labelledby", title.id);
    this.body = create("div", "body");
    this.element.append(title, create("p", "about", about(model)), this.body);
    this.clear();
  }

  clear() {
    this.element.classList.remove("waiting");
    this.body.replaceChildren();
  }

  // The old translation stays, paler, until the new one is there: nothing jumps while a person types.
  wait() {
    this.element.classList.add("waiting");
  }

  fail(message) {
    this.clear();
    this.body.append(create("p", "error", message));
  }

  // Lists are open where there is room for them: for one line, and of several runs on a wide screen only.
  show(lines, alone) {
    this.clear();
    const spoken = lines.filter((hypotheses) => hypotheses[0].text);
    const open = spoken.length === 1 && (alone || matchMedia("(min-width: 45rem)").matches);
    for (const hypotheses of spoken) this.body.append(lineOf(this.model, hypotheses, open));
  }
}

function about(model) {
  const size = model.parameters === null ? "exported" : `${(model.parameters / 1e6).toFixed(1)} M parameters`;
  const name = model.architecture === model.name ? "" : `${model.architecture}, `;
  return `${name}${size}, beam ${model.beam_size}`;
}

function lineOf(model, hypotheses, open) {
  const line = create("div", "line");
  const shown = create("div");
  const list = create("details");
  list.open = open;
  list.append(create("summary", "", `${hypotheses.length} best, with scores`), create("ol", "hypotheses"));
  const buttons = hypotheses.map((hypothesis) => {
    const button = create("button", "hypothesis");
    const text = create("span", "text", hypothesis.text || "(nothing)");
    text.lang = model.target.code;
    button.append(text, create("span", "score", hypothesis.score.toFixed(3).replace("-", "−")));
    button.title = "Score: log-probability over the length penalty. Choose to see its alignment.";
    button.addEventListener("click", () => choose(button, hypothesis));
    const item = create("li");
    item.append(button);
    list.lastChild.append(item);
    return button;
  });
  const choose = (chosen, hypothesis) => {
    for (const button of buttons) button.setAttribute("aria-pressed", button === chosen);
    shown.replaceChildren(...(hypothesis.alignment ? aligned(model, hypothesis) : plain(model, hypothesis)));
  };
  choose(buttons[0], hypotheses[0]);
  line.append(shown, list);
  return line;
}

function plain(model, hypothesis) {
  const text = create("p", "words target", hypothesis.text);
  text.lang = model.target.code;
  const note = "This model does not attend: its decoder gets the whole sentence at once and looks at no word of it.";
  return [text, ...cutNote(hypothesis), create("p", "note", note)];
}

function cutNote(hypothesis) {
  return hypothesis.cut ? [create("p", "error", "Ended at its greatest length: something may be missing.")] : [];
}

// Words that tell where they looked and by whom they were looked at. weights[t][s]: how much target word t looked at
// source word s; what is missing from 1 went to the end of the sentence.
function aligned(model, hypothesis) {
  const { source, target, weights } = hypothesis.alignment;
  const hint = "Point at or tap a word, or use Tab and the arrow keys, to see where the model looked.";
  const note = create("p", "note", hint);
  note.setAttribute("aria-live", "polite");
  const ends = weights.map((row) => Math.max(0, 1 - row.reduce((sum, weight) => sum + weight, 0)));
  const sources = words(source, "source", `${model.source.name} words`, model.source.code);
  const targets = words(target, "target", `${model.target.name} words`, model.target.code);
  const end = create("span", "word end", "end");
  end.title = "the end of the sentence";
  sources.group.append(end);

  const light = (buttons, amounts, chosen) => {
    buttons.forEach((button, place) => {
      const amount = amounts ? amounts[place] : 0;
      button.style.setProperty("--weight", amount.toFixed(3));
      button.classList.toggle("looked-at", amount >= LEAST_FRAMED);
      button.classList.toggle("chosen", button === chosen);
    });
  };
  const nothing = () => {
    light([...sources.buttons, end, ...targets.buttons], null, null);
    note.textContent = hint;
  };
  const target_ = (t) => {
    light(targets.buttons, null, targets.buttons[t]);
    light([...sources.buttons, end], [...weights[t], ends[t]], null);
    note.textContent = `${target[t]} ← ${told([...source, "the end"], [...weights[t], ends[t]])}`;
  };
  const source_ = (s) => {
    const column = weights.map((row) => row[s]);
    light([...sources.buttons, end], null, sources.buttons[s]);
    light(targets.buttons, column, null);
    note.textContent = `${source[s]} → ${told(target, column)}`;
  };
  watch(targets, target_, nothing);
  watch(sources, source_, nothing);
  return [targets.group, ...cutNote(hypothesis), sources.group, note];
}

function told(names, amounts) {
  const strongest = names
    .map((name, place) => [name, amounts[place]])
    .filter(([, amount]) => amount >= LEAST_TOLD)
    .sort((left, right) => right[1] - left[1])
    .slice(0, MOST_TOLD);
  return strongest.map(([name, amount]) => `${name} ${percent.format(amount)}`).join(", ") || "no word";
}

function words(texts, kind, label, language) {
  const group = create("div", `words ${kind}`);
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", label);
  const buttons = texts.map((text) => {
    const button = create("button", "word", text);
    button.lang = language;
    button.tabIndex = -1;
    return button;
  });
  if (buttons.length) buttons[0].tabIndex = 0; // one stop for Tab; the arrow keys go on from there
  group.append(...buttons);
  return { group, buttons };
}

// A word that is pointed at counts before the one that has the focus, which counts again afterwards.
function watch({ group, buttons }, enter, leave) {
  let focused = -1;
  const back = () => (focused >= 0 ? enter(focused) : leave());
  buttons.forEach((button, place) => {
    button.addEventListener("pointerenter", () => enter(place));
    button.addEventListener("pointerleave", back);
    button.addEventListener("click", () => button.focus()); // Safari does not focus what is clicked
    button.addEventListener("focus", () => { focused = place; enter(place); });
    button.addEventListener("blur", () => { focused = -1; leave(); });
  });
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = { Home: 0, End: buttons.length - 1 }[event.key] ?? focused + step;
    if (!buttons[next]) return;
    event.preventDefault();
    for (const button of buttons) button.tabIndex = -1;
    buttons[next].tabIndex = 0;
    buttons[next].focus();
  });
}

function create(tag, kind = "", text = "") {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (tag === "button") element.type = "button";
  element.textContent = text;
  return element;
}
