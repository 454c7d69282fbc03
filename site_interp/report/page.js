"use strict";
// Draws the figures and lists the examples. Texts of a run reach the page as text nodes only, never as markup.
(() => {
  const PAGE = 25; // examples listed at a time
  const LONG = 400; // characters from which a text scrolls in its place
  const data = JSON.parse(document.getElementById("data").textContent);
  const methods = new Map(data.methods.map((method) => [method.label, method]));
  const verdicts = Object.keys(data.verdicts);

  function make(name, properties, ...inside) {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...inside);
    return element;
  }

  function choices(select, pairs) {
    select.replaceChildren(...pairs.map(([value, words]) => make("option", { value }, words)));
  }

  function swatch(label) {
    const square = make("span", { className: "swatch" });
    square.style.background = methods.get(label).colour;
    return square;
  }

  // Scores

  function showMetric() {
    const chosen = document.querySelector("input[name=metric]:checked");
    for (const block of document.querySelectorAll(".by-metric")) {
      block.hidden = chosen !== null && block.dataset.metric !== chosen.value;
    }
  }

  for (const button of document.querySelectorAll("input[name=metric]")) button.addEventListener("change", showMetric);
  showMetric();
  const colours = new Map(data.methods.map((method) => [method.label.split("(")[0], method.colour]));
  for (const square of document.querySelectorAll(".swatch[data-method]")) {
    square.style.background = colours.get(square.dataset.method);
  }

  // Figures, one after the other so that the page answers meanwhile

  function draw(places) {
    if (places.length === 0) return;
    const [place, ...rest] = places;
    const figure = data.figures[Number(place.dataset.number)];
    Plotly.newPlot(place, figure.data, figure.layout, { displaylogo: false }).then(() => setTimeout(draw, 0, rest));
  }

  const places = [...document.querySelectorAll(".drawing")];
  for (const place of places) {
    place.style.minHeight = `${data.figures[Number(place.dataset.number)].layout.height ?? 450}px`;
  }
  setTimeout(draw, 0, places);

  // Examples: which of them

  const form = document.getElementById("filter");
  const verdictOf = document.getElementById("verdict");
  const shown = document.getElementById("shown");

  function right(unit, place, verdict) {
    const scores = unit.scores[verdict];
    return scores === undefined ? null : scores[place] === 1;
  }

  // The runs of a method that a condition is about; a method that takes no seed stands for each of them.
  function runsOf(task, method, seed) {
    const all = task.units.filter((unit) => unit.method === method);
    if (seed === "every" || seed === "some" || all.length === 1) return all;
    return all.filter((unit) => unit.seed === Number(seed));
  }

  function holds(task, place, condition, verdict) {
    if (condition.state === "") return true;
    const wanted = condition.state === "right";
    const fits = (method) => {
      const found = runsOf(task, method, condition.seed).map((unit) => right(unit, place, verdict) === wanted);
      return found.length > 0 && (condition.seed === "some" ? found.some(Boolean) : found.every(Boolean));
    };
    const own = [...new Set(task.units.map((unit) => unit.method))];
    const asking = own.filter((method) => !methods.get(method).floor);
    if (condition.method === "*every") return asking.length > 0 && asking.every(fits);
    if (condition.method === "*any") return asking.some(fits);
    return fits(condition.method);
  }

  function filter() {
    const conditions = [...form.querySelectorAll(".condition")].map((line) => ({
      method: line.querySelector(".method").value,
      state: line.querySelector(".state").value,
      seed: line.querySelector(".seed").value,
    }));
    const text = document.getElementById("text").value.toLowerCase();
    const verdict = verdictOf.value;
    return (task, place) =>
      task.texts[place].includes(text) && conditions.every((condition) => holds(task, place, condition, verdict));
  }

  for (const task of data.tasks) {
    task.texts = task.inputs.map((input, place) =>
      [input, ...task.answers[place], ...task.units.map((unit) => unit.outputs[place])].join("\n").toLowerCase());
  }

  // Examples: how they look

  function textBlock(text, alone) {
    const trimmed = text.trim();
    if (trimmed === "") return make("span", { className: "none" }, "(empty)");
    const long = alone && trimmed.length > LONG;
    const block = make("span", { className: long ? "text long" : "text" }, trimmed);
    if (long) block.tabIndex = 0;
    return block;
  }

  function marks(unit, place) {
    const list = make("span", { className: "marks" });
    for (const verdict of verdicts.filter((name) => name in unit.scores)) {
      const good = right(unit, place, verdict);
      const words = `${data.verdicts[verdict]}: ${good ? "right" : "wrong"}`;
      const chosen = verdict === verdictOf.value ? " chosen" : "";
      const mark = make("span", { className: `mark ${good ? "right" : "wrong"}${chosen}`, title: words });
      mark.setAttribute("role", "img");
      mark.setAttribute("aria-label", words);
      mark.append(good ? "✓" : "✗");
      list.append(mark);
    }
    return list;
  }

  // The outputs of one method, those that are alike in one line.
  function outputsOf(units, place) {
    const groups = new Map();
    for (const unit of units) {
      const key = JSON.stringify([unit.outputs[place], verdicts.map((verdict) => right(unit, place, verdict))]);
      groups.set(key, [...(groups.get(key) ?? []), unit]);
    }
    return make("ul", {}, ...[...groups.values()].map((alike) => {
      const nats = alike.map((unit) => unit.scores.answer_log_prob?.[place]).filter((score) => score !== undefined);
      const seeds = `seed${alike.length > 1 ? "s" : ""} ${alike.map((unit) => unit.seed).join(", ")}`;
      const about = nats.length ? `${seeds}; ${nats.map((score) => score.toFixed(2)).join(", ")} nats` : seeds;
      const text = textBlock(alike[0].outputs[place], false);
      return make("li", {}, marks(alike[0], place),
        make("div", {}, text, make("span", { className: "about" }, about.replaceAll("-", "−"))));
    }));
  }

  function row(task, place) {
    const list = make("dl", { className: "outputs" });
    const wanted = new Set([...shown.querySelectorAll("input:checked")].map((box) => box.value));
    for (const label of methods.keys()) {
      const units = task.units.filter((unit) => unit.method === label);
      if (units.length === 0 || !wanted.has(label)) continue;
      list.append(make("dt", {}, swatch(label), label), make("dd", {}, outputsOf(units, place)));
    }
    const answers = make("ul", {}, ...task.answers[place].map((answer) => make("li", {}, textBlock(answer, true))));
    return make("tr", { className: "example" },
      make("td", { className: "number" }, String(place + 1)),
      make("td", { className: "input" }, textBlock(task.inputs[place], true)),
      make("td", { className: "answers" }, answers),
      make("td", {}, list));
  }

  function table(task, found, limit) {
    const names = ["number", "input", "answers", ""];
    const words = ["#", "input", "right answers", `outputs; marks: ${verdicts.map((name) => data.verdicts[name]).join(", ")}`];
    const heading = names.map((className, at) => make("th", { className, scope: "col" }, words[at]));
    const rows = found.slice(0, limit).map((place) => row(task, place));
    return make("table", {}, make("thead", {}, make("tr", {}, ...heading)), make("tbody", {}, ...rows));
  }

  function list(section, limit) {
    const { task, found, body } = section;
    const notes = task.notes.map((note) => make("li", {}, note));
    body.replaceChildren(...(notes.length ? [make("ul", { className: "notes" }, ...notes)] : []));
    if (found.length === 0) return;
    body.append(table(task, found, limit));
    if (found.length <= limit) return;
    const next = make("button", { type: "button" }, `Show ${Math.min(PAGE, found.length - limit)} more`);
    next.addEventListener("click", () => {
      list(section, limit + PAGE);
      body.querySelectorAll(".example")[limit].querySelector(".number").scrollIntoView({ block: "nearest" });
    });
    const all = make("button", { type: "button" }, `Show all ${found.length}`);
    all.addEventListener("click", () => list(section, found.length));
    body.append(make("div", { className: "more" }, next, all));
  }

  const sections = data.tasks.map((task, at) => {
    const count = make("span", { className: "count" });
    const body = make("div", { className: "body" });
    const details = make("details", { className: "task", open: at === 0 },
      make("summary", {}, task.name, count), body);
    const section = { task, found: [], count, body, details };
    details.addEventListener("toggle", () => details.open && list(section, PAGE));
    return section;
  });

  function update() {
    const fits = filter();
    for (const section of sections) {
      section.found = section.task.inputs.map((_, place) => place).filter((place) => fits(section.task, place));
      section.count.textContent = `${section.found.length} of ${section.task.inputs.length}`;
      if (section.details.open) list(section, PAGE);
      else section.body.replaceChildren();
    }
    const total = (number) => sections.reduce((sum, section) => sum + number(section), 0);
    document.getElementById("total").textContent =
      `${total((s) => s.found.length)} of ${total((s) => s.task.inputs.length)} examples`;
  }

  function fillForm() {
    choices(verdictOf, Object.entries(data.verdicts));
    const seeds = [...new Set(data.tasks.flatMap((task) => task.units.map((unit) => unit.seed)))].sort((a, b) => a - b);
    for (const line of form.querySelectorAll(".condition")) {
      const general = [["*any", "any method"], ["*every", "every method"]];
      choices(line.querySelector(".method"), [...general, ...[...methods.keys()].map((label) => [label, label])]);
      choices(line.querySelector(".state"), [["", "is right or wrong"], ["right", "is right"], ["wrong", "is wrong"]]);
      choices(line.querySelector(".seed"),
        [["every", "in every seed"], ["some", "in some seed"], ...seeds.map((seed) => [String(seed), `in seed ${seed}`])]);
    }
    const onlyFloors = data.methods.every((method) => method.floor);
    for (const { label, floor } of data.methods) {
      // The default stands in the attribute, so that clearing the form restores it.
      const box = make("input", { type: "checkbox", value: label, defaultChecked: onlyFloors || !floor });
      shown.append(make("label", {}, box, " ", swatch(label), label));
    }
  }

  fillForm();
  document.getElementById("tasks").append(...sections.map((section) => section.details));
  form.addEventListener("input", update);
  form.addEventListener("reset", () => setTimeout(update, 0));
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
})();
