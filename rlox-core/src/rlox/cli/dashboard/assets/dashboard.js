"use strict";

// Every text of a run may come from a stranger: it is set as textContent, never as markup.

const runs = new Map(); // id -> summary
const curves = new Map(); // id -> {x, y} of the metric
const selected = new Set();
const charts = new Map(); // env -> Chart
const rows = new Map(); // id -> table row
const KEPT = 4096; // points of a line, above which every second is dropped

const byId = (id) => document.getElementById(id);
let source = null;
let metric = "mean_reward";
let order = { key: "name", down: false };
let open = null; // id of the run that is shown alone
let waiting = false;

function make(tag, text, attributes) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  return Object.assign(element, attributes || {});
}

function later() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    showCharts();
    showTable();
  });
}

function connect() {
  if (source) source.close();
  curves.clear();
  source = new EventSource("events?metric=" + encodeURIComponent(metric));
  source.addEventListener("open", () => {
    curves.clear();
    runs.clear();
    byId("state").textContent = "live";
  });
  source.addEventListener("error", () => (byId("state").textContent = "connection lost"));
  source.addEventListener("runs", (e) => {
    for (const run of JSON.parse(e.data)) runs.set(run.id, run);
    showMetrics();
    later();
  });
  source.addEventListener("curves", (e) => {
    const data = JSON.parse(e.data);
    if (data.metric !== metric) return;
    data.curves.forEach(addCurve);
    later();
  });
  source.addEventListener("gone", (e) => {
    for (const id of JSON.parse(e.data)) {
      runs.delete(id);
      curves.delete(id);
      selected.delete(id);
    }
    later();
  });
}

function addCurve(news) {
  const known = news.whole ? { x: [], y: [] } : curves.get(news.id) || { x: [], y: [] };
  known.x.push(...news.x);
  known.y.push(...news.y);
  if (known.x.length > KEPT) {
    const keep = (_, i) => i % 2 === 0 || i === known.x.length - 1;
    [known.x, known.y] = [known.x.filter(keep), known.y.filter(keep)];
  }
  curves.set(news.id, known);
}

function showMetrics() {
  const names = new Set([metric]);
  for (const run of runs.values()) run.metrics.forEach((name) => names.add(name));
  const menu = byId("metric");
  const wanted = [...names].sort();
  if (wanted.join("\n") === [...menu.options].map((o) => o.value).join("\n")) return;
  menu.replaceChildren(...wanted.map((name) => make("option", name, { value: name })));
  menu.value = metric;
}

function last(run) {
  const curve = curves.get(run.id);
  return curve && curve.y.length ? curve.y[curve.y.length - 1] : -Infinity;
}

const KEYS = {
  last,
  evaluated: (run) => (run.evaluation ? run.evaluation[0] : -Infinity),
  seed: (run) => (Number.isFinite(+run.seed) ? +run.seed : run.seed),
};

function visible() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const key = KEYS[order.key] || ((run) => run[order.key]);
  const found = [...runs.values()].filter((run) => {
    const text = [run.name, run.algorithm, run.env, run.status, run.set].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const sign = order.down ? -1 : 1;
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  return found.sort((a, b) => {
    const [p, q] = [key(a), key(b)];
    return sign * (typeof p === "number" && typeof q === "number" ? p - q || 0 : compare(p, q));
  });
}

function colours() {
  const groups = [...new Set([...runs.values()].map((run) => run.group))].sort();
  return new Map(groups.map((name, i) => [name, COLOURS[i % COLOURS.length]]));
}

function showCharts() {
  const shown = visible().filter((run) => !selected.size || selected.has(run.id));
  const palette = colours();
  const weight = Number(byId("smoothing").value);
  const panels = new Map();
  for (const run of shown) {
    const curve = curves.get(run.id) || { x: [], y: [] };
    const line = {
      name: run.name,
      x: curve.x,
      y: smoothed(curve.y, weight),
      colour: palette.get(run.group),
      open: () => showDetails(run.id),
    };
    if (!panels.has(run.env)) panels.set(run.env, []);
    panels.get(run.env).push(line);
  }
  for (const [env, chart] of charts) {
    if (panels.has(env)) continue;
    chart.element.remove();
    charts.delete(env);
  }
  for (const [env, lines] of panels) {
    if (!charts.has(env)) {
      charts.set(env, new Chart(env));
      byId("charts").append(charts.get(env).element);
    }
    charts.get(env).show(lines);
  }
}

function showTable() {
  const shown = visible();
  const palette = colours();
  const body = document.querySelector("#runs tbody");
  for (const id of rows.keys()) if (!runs.has(id)) rows.delete(id);
  body.replaceChildren(...shown.map((run) => rowOf(run, palette)));
  byId("compare").disabled = selected.size < 2;
  const running = shown.filter((run) => run.status === "running").length;
  document.title = `rlox: ${shown.length} runs, ${running} running`;
}

function rowOf(run, palette) {
  let row = rows.get(run.id);
  if (!row) {
    row = make("tr");
    const box = make("input", undefined, { type: "checkbox" });
    box.setAttribute("aria-label", "select");
    box.addEventListener("change", () => {
      if (box.checked) selected.add(run.id);
      else selected.delete(run.id);
      later();
    });
    const name = make("button", undefined, { type: "button", className: "link" });
    name.addEventListener("click", () => showDetails(run.id));
    const swatch = make("span", undefined, { className: "swatch" });
    const cells = Array.from({ length: 9 }, () => make("td"));
    cells[0].append(box);
    cells[1].append(swatch, name);
    cells[6].className = cells[7].className = cells[8].className = "number";
    row.append(...cells);
    rows.set(run.id, row);
  }
  fill(row, run, palette);
  return row;
}

function fill(row, run, palette) {
  const cells = row.children;
  cells[0].firstChild.checked = selected.has(run.id);
  cells[1].firstChild.style.background = palette.get(run.group);
  cells[1].lastChild.textContent = run.name;
  const value = last(run);
  const texts = [
    run.algorithm,
    run.env,
    run.seed,
    run.problem ? `${run.status}: ${run.problem}` : run.status,
    `${run.steps.toLocaleString("en")} of ${run.target.toLocaleString("en")}`,
    Number.isFinite(value) ? shortNumber(value) : "-",
    run.evaluation ? `${run.evaluation[0].toFixed(1)} ± ${run.evaluation[1].toFixed(1)}` : "-",
  ];
  texts.forEach((text, i) => {
    if (cells[i + 2].textContent !== text) cells[i + 2].textContent = text;
  });
  row.classList.toggle("shown", run.id === open);
}

async function fetched(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

function table(heads, lines) {
  const element = make("table");
  const top = make("tr");
  top.append(...heads.map((text) => make("th", text)));
  element.append(top);
  for (const line of lines) {
    const row = make("tr");
    row.append(...line.map((text) => make("td", text)));
    element.append(row);
  }
  return element;
}

function closing() {
  const button = make("button", "close", { type: "button" });
  button.addEventListener("click", () => {
    open = null;
    byId("details").hidden = true;
    later();
  });
  return button;
}

async function showDetails(id) {
  open = id;
  const run = await fetched(`runs/${id}`);
  if (open !== id) return;
  const panel = byId("details");
  panel.replaceChildren(make("h2", run.name), closing(), make("p", run.path));
  panel.append(make("p", run.command, { className: "muted" }));
  panel.hidden = false;
  const grid = make("div", undefined, { className: "small" });
  panel.append(grid);
  for (const [name, curve] of Object.entries(run.curves)) {
    const chart = new Chart(name);
    grid.append(chart.element);
    chart.show([{ name, ...curve, colour: COLOURS[0] }]);
  }
  if (run.films.length) panel.append(make("h3", "films"));
  for (const film of run.films) panel.append(filmOf(id, film));
  panel.append(make("h3", "log"), make("pre", run.log));
  panel.append(make("h3", "options"), table(["option", "value"], Object.entries(run.options)));
  panel.scrollIntoView({ behavior: "smooth" });
  later();
}

function filmOf(id, name) {
  const path = `runs/${id}/films/${name.split("/").map(encodeURIComponent).join("/")}`;
  const box = make("figure");
  if (name.endsWith(".gif")) box.append(make("img", undefined, { src: path, className: "film", alt: name }));
  else box.append(make("video", undefined, { src: path, controls: true, loop: true, muted: true, preload: "metadata" }));
  box.append(make("figcaption", name));
  return box;
}

async function showComparison() {
  const query = [...selected].map((id) => `run=${id}`).join("&");
  const found = await fetched("compare?" + query);
  open = null;
  const panel = byId("details");
  panel.replaceChildren(make("h2", "options that differ"), closing());
  const lines = Object.entries(found.options).map(([name, texts]) => [name, ...texts]);
  if (lines.length) panel.append(table(["option", ...found.runs], lines));
  else panel.append(make("p", "All selected runs have the same options, seeds aside."));
  panel.hidden = false;
  later();
}

byId("metric").addEventListener("change", (e) => {
  metric = e.target.value;
  connect();
});
byId("filter").addEventListener("input", later);
byId("smoothing").addEventListener("input", later);
byId("compare").addEventListener("click", showComparison);
document.querySelectorAll("th[data-key]").forEach((head) =>
  head.addEventListener("click", () => {
    const key = head.dataset.key;
    order = { key, down: order.key === key && !order.down };
    later();
  }),
);
connect();
