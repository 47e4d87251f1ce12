"use strict";
/* The page of a run: numbers come as text (JSON lines, a plan, a log), inlined in a report or asked for again and again from a
 * run that goes on.  A damaged line is skipped.  Everything is drawn as SVG by hand; nothing is loaded from anywhere. */

const NS = "http://www.w3.org/2000/svg";
const data = JSON.parse(document.getElementById("data").textContent);
const runs = [];
const byId = (id) => document.getElementById(id);

/* -- numbers as people read them ------------------------------------------------------------------ */

function count(v) {
  if (!Number.isFinite(v)) return "–";
  const a = Math.abs(v);
  for (const [size, unit] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "K"]]) {
    if (a >= size) { const n = unit === "K" ? v / 1e3 : v / size; return trim(n) + " " + unit; }
  }
  return trim(v);
}
function trim(v) {
  const a = Math.abs(v);
  if (v === 0) return "0";
  if (a >= 100) return v.toFixed(0);
  if (a >= 1e-3) return String(Number(v.toPrecision(3)));
  return Number(v.toPrecision(2)).toExponential();
}
function bytes(v) {
  if (!Number.isFinite(v)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (v >= 1024 && i < units.length - 1) { v /= 1024; i++; }
  return trim(v) + " " + units[i];
}
function seconds(v) {
  if (!Number.isFinite(v)) return "–";
  if (v === 0) return "0";
  if (v < 1e-3) return trim(v * 1e6) + " µs";
  if (v < 1) return trim(v * 1e3) + " ms";
  if (v < 90) return trim(v) + " s";
  if (v < 5400) return Math.round(v / 60) + " min";
  const hours = Math.floor(v / 3600);
  return hours + " h " + Math.round((v - hours * 3600) / 60) + " min";
}

/* -- a run ----------------------------------------------------------------------------------------- */

function readLines(run, text) {
  for (const line of text.split("\n")) {
    if (!line) continue;
    try { addPoint(run, JSON.parse(line)); } catch { run.damaged++; }
  }
}
function addPoint(run, p) {
  if ("eval_loss" in p) run.evals.push(p);
  else if ("sample" in p || "samples" in p) run.sample = p;
  else if ("loss" in p) {
    run.steps.push(p);
    if (p.sample) run.sample = p;
  }
}
function takeRun(run, got) {
  run.name = got.name;
  if (got.from === 0) { run.steps = []; run.evals = []; run.sample = null; run.damaged = 0; }
  readLines(run, got.metrics);
  run.bytes = got.bytes;
  run.log = got.log;
  run.config = got.config;
  try { run.plan = got.plan ? JSON.parse(got.plan) : null; } catch { run.plan = null; }
}
function newRun(got) {
  const run = { steps: [], evals: [], damaged: 0 };
  takeRun(run, got);
  runs.push(run);
}

const last = (list) => list[list.length - 1];
const color = (i) => `var(--c${i % 6})`;

/* An exponential mean that forgets its empty beginning. */
function smooth(points, weight) {
  let sum = 0, norm = 0;
  return points.map(([x, y]) => {
    if (!Number.isFinite(y)) return [x, NaN];
    sum = sum * weight + y * (1 - weight);
    norm = norm * weight + (1 - weight);
    return [x, sum / norm];
  });
}

/* -- charts ---------------------------------------------------------------------------------------- */

function element(name, attributes, text) {
  const e = document.createElementNS(NS, name);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (text !== undefined) e.textContent = text;
  return e;
}
function html(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

/* Round numbers from low to high, about n of them; memory is counted in powers of two. */
function niceTicks(low, high, n, binary) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / n, power = 10 ** Math.floor(Math.log10(raw));
  const step = binary ? 2 ** Math.round(Math.log2(raw)) : power * [1, 2, 2.5, 5, 10].find((m) => m * power >= raw * 0.999);
  const ticks = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step) ticks.push(Math.abs(t) < step * 1e-9 ? 0 : t);
  return ticks;
}
function logTicks(low, high) {
  const ticks = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high) + 1; p++)
    for (const m of [1, 2, 5]) { const t = m * 10 ** p; if (t >= low && t <= high) ticks.push(t); }
  const every = Math.ceil(ticks.length / 6) || 1;
  return ticks.filter((_, i) => i % every === 0);
}

/* A long series as what a screen can show: the lowest and highest of each column. */
function thin(points, columns) {
  if (points.length <= columns * 2) return points;
  const out = [], per = points.length / columns;
  for (let c = 0; c < columns; c++) {
    const part = points.slice(Math.floor(c * per), Math.floor((c + 1) * per)).filter((p) => Number.isFinite(p[1]));
    if (!part.length) continue;
    let lo = part[0], hi = part[0];
    for (const p of part) { if (p[1] < lo[1]) lo = p; if (p[1] > hi[1]) hi = p; }
    if (lo[0] <= hi[0]) out.push(lo, hi); else out.push(hi, lo);
  }
  return out;
}
function pathOf(points, X, Y) {
  let d = "", pen = false;
  for (const [x, y] of points) {
    const v = Y(y);
    if (!Number.isFinite(v)) { pen = false; continue; }
    d += (pen ? "L" : "M") + X(x).toFixed(1) + " " + v.toFixed(1);
    pen = true;
  }
  return d;
}

/* spec: {title, format, series: [{name, color, points, faint, dots}], stacked, zero, log} */
function draw(card, spec) {
  const width = Math.max(260, card.clientWidth - 26), height = 220;
  const left = 52, right = 10, top = 8, bottom = 24;
  const all = spec.series.flatMap((s) => s.points).filter((p) => Number.isFinite(p[1]) && Number.isFinite(p[0]) && (!spec.log || p[1] > 0));
  card.replaceChildren(html("h2", "", spec.title));
  if (all.length < 1) { card.append(html("p", "none", "nothing to draw yet")); return; }
  if (spec.legend && spec.legend.length > 1) card.append(legendOf(spec.legend));

  let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
  for (const [x, y] of all) { if (x < x0) x0 = x; if (x > x1) x1 = x; if (y < y0) y0 = y; if (y > y1) y1 = y; }
  if (spec.zero && !spec.log) y0 = Math.min(0, y0);
  if (x0 === x1) { x0 -= 1; x1 += 1; }
  if (y0 === y1) { const d = Math.abs(y0) * 0.1 || 1; y0 -= spec.zero ? 0 : d; y1 += d; }
  if (spec.log) { y0 /= 1.05; y1 *= 1.05; }
  const scale = spec.log ? Math.log : (v) => v;
  const X = (v) => left + (v - x0) / (x1 - x0) * (width - left - right);
  const Y = (v) => (spec.log && !(v > 0)) ? NaN : height - bottom - (scale(v) - scale(y0)) / (scale(y1) - scale(y0)) * (height - top - bottom);

  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spec.title });
  for (const t of spec.log ? logTicks(y0, y1) : niceTicks(y0, y1, 5, spec.format === bytes)) {
    svg.append(element("line", { class: "grid", x1: left, x2: width - right, y1: Y(t), y2: Y(t) }),
      element("text", { class: "tick", x: left - 6, y: Y(t) + 4, "text-anchor": "end" }, spec.format(t)));
  }
  for (const t of niceTicks(x0, x1, Math.max(2, Math.floor(width / 80))))
    svg.append(element("text", { class: "tick", x: X(t), y: height - 6, "text-anchor": "middle" }, count(t)));
  for (const s of spec.series) drawSeries(svg, s, X, Y, width, spec.stacked);
  card.append(svg);
  hover(card, svg, spec, { X, Y, x0, x1, left, right, width, top, bottom, height });
}
function drawSeries(svg, s, X, Y, width, stacked) {
  const points = thin(s.points, width);
  if (stacked) {
    const floor = thin(s.floor, width).reverse();
    const d = pathOf(points, X, Y) + pathOf(floor, X, Y).replace("M", "L") + "Z";
    svg.append(element("path", { d, fill: s.color, "fill-opacity": 0.75, stroke: "var(--card)", "stroke-width": 0.5 }));
    return;
  }
  if (points.length > 1 && !s.alone)
    svg.append(element("path", { d: pathOf(points, X, Y), fill: "none", stroke: s.color, "stroke-width": s.faint ? 1 : 2, "stroke-opacity": s.faint ? 0.3 : 1, "stroke-linejoin": "round", ...(s.dots ? { "stroke-dasharray": "2 4" } : {}) }));
  if (s.dots || points.length === 1)
    for (const [x, y] of points) if (Number.isFinite(Y(y))) svg.append(element("circle", { cx: X(x), cy: Y(y), r: 4, fill: s.color, stroke: "var(--card)", "stroke-width": 1.5 }));
}
function legendOf(items) {
  const box = html("div", "legend");
  for (const item of items) {
    const span = html("span"), mark = html("i");
    mark.style.background = item.color;
    span.append(mark, item.name);
    box.append(span);
  }
  return box;
}

function nearest(points, x) {
  let lo = 0, hi = points.length - 1;
  if (hi < 0) return null;
  while (hi - lo > 1) { const mid = (lo + hi) >> 1; if (points[mid][0] < x) lo = mid; else hi = mid; }
  return Math.abs(points[lo][0] - x) <= Math.abs(points[hi][0] - x) ? points[lo] : points[hi];
}
function hover(card, svg, spec, at) {
  const cross = element("line", { class: "cross", y1: at.top, y2: at.height - at.bottom, visibility: "hidden" });
  svg.append(cross);
  let tip = null;
  const leave = () => { cross.setAttribute("visibility", "hidden"); if (tip) { tip.remove(); tip = null; } };
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("pointermove", (e) => {
    const box = svg.getBoundingClientRect();
    const px = (e.clientX - box.left) / box.width * at.width;
    const x = at.x0 + (px - at.left) / (at.width - at.left - at.right) * (at.x1 - at.x0);
    const shown = spec.series.filter((s) => !s.faint && s.points.length).map((s) => [s, nearest(s.own || s.points, x)]).filter(([, p]) => p && Number.isFinite(p[1]));
    if (!shown.length) return leave();
    const where = nearest(shown[0][0].own || shown[0][0].points, x)[0];
    cross.setAttribute("x1", at.X(where));
    cross.setAttribute("x2", at.X(where));
    cross.setAttribute("visibility", "visible");
    if (!tip) { tip = html("div", "tip"); card.append(tip); }
    tip.replaceChildren(html("div", "", byId("x-axis").selectedOptions[0].text + " " + count(where)));
    for (const [s, p] of shown) tip.append(html("div", "", `${s.name}: ${spec.format(p[1])}`));
    const room = card.clientWidth - tip.offsetWidth - 8;
    tip.style.left = Math.max(4, Math.min(room, e.clientX - card.getBoundingClientRect().left + 12)) + "px";
    tip.style.top = Math.max(4, e.clientY - card.getBoundingClientRect().top - tip.offsetHeight - 12) + "px";
  });
}

/* -- what is drawn --------------------------------------------------------------------------------- */

const xOf = (p) => p[byId("x-axis").value];
const column = (run, key) => run.steps.filter((p) => key in p).map((p) => [xOf(p), p[key] === null ? NaN : p[key]]);

const has = (key) => runs.some((run) => run.steps.some((p) => key in p));

/* Evaluations know no tokens: they stand where the step they belong to stands. */
function evalPoints(run) {
  const axis = byId("x-axis").value;
  return run.evals.map((e) => {
    if (axis in e) return [e[axis], e.eval_loss];
    const at = run.steps.filter((p) => p.step <= e.step);
    return [at.length ? last(at)[axis] : 0, e.eval_loss];
  });
}
const label = (run, what) => runs.length > 1 ? `${run.name}: ${what}` : what;

function lossChart() {
  const weight = Number(byId("smoothing").value), series = [];
  const legend = [];
  runs.forEach((run, i) => {
    const raw = column(run, "loss");
    if (weight > 0) series.push({ name: "loss", color: color(i), points: raw, faint: true });
    series.push({ name: label(run, weight > 0 ? "loss, smoothed" : "loss"), color: color(i), points: smooth(raw, weight) });
    if (run.evals.length) {
      const c = runs.length > 1 ? color(i) : color(1);
      series.push({ name: label(run, "evaluation"), color: c, points: evalPoints(run), dots: true });
      if (runs.length === 1) legend.push({ name: "training", color: color(0) }, { name: "evaluation", color: c });
    }
  });
  return { title: "Loss", format: trim, series, legend, log: byId("log-loss").checked };
}
function plainChart(title, key, format, zero) {
  return { title, format, zero, series: runs.map((run, i) => ({ name: label(run, title.toLowerCase()), color: color(i), points: column(run, key) })) };
}
function speedChart() {
  const series = [], legend = [];
  runs.forEach((run, i) => {
    const c = runs.length > 1 ? color(i) : color(0);
    series.push({ name: label(run, "all"), color: c, points: column(run, "tokens_per_second") });
    if (runs.length === 1) {
      series.push({ name: "trained on", color: color(1), points: column(run, "trained_tokens_per_second") });
      legend.push({ name: "all", color: c }, { name: "trained on", color: color(1) });
    }
  });
  return { title: "Tokens a second", format: count, zero: true, series, legend };
}
const WAITS = [["wait_data_seconds", "waits for data"], ["wait_save_seconds", "waits for a checkpoint"], ["wait_update_seconds", "waits for updates"], ["wait_devices_seconds", "waits for other devices"]];
function timeChart(run) {
  const steps = run.steps.filter((p) => p.step_seconds);
  const parts = [["compute", (p) => p.step_seconds - WAITS.reduce((s, [key]) => s + (p[key] || 0), 0)], ...WAITS.map(([key, name]) => [name, (p) => p[key] || 0])];
  let floor = steps.map((p) => [xOf(p), 0]);
  const series = parts.map(([name, value], i) => {
    const own = steps.map((p) => [xOf(p), value(p)]);
    const points = own.map(([x, y], k) => [x, floor[k][1] + y]);
    const s = { name, color: color(i), points, floor, own };
    floor = points;
    return s;
  });
  return { title: runs.length > 1 ? `Where a step's time went: ${run.name}` : "Where a step's time went", format: seconds, zero: true, stacked: true, series, legend: series };
}
function memoryChart() {
  const series = [], legend = [];
  runs.forEach((run, i) => {
    const pair = [["device_memory_peak", "device", 0], ["host_memory_peak", "host", 1]];
    for (const [key, name, k] of pair) {
      const c = color(runs.length > 1 ? 2 * i + k : k);
      series.push({ name: label(run, name), color: c, points: column(run, key) });
      legend.push({ name: label(run, name), color: c });
    }
  });
  return { title: "Memory, most so far", format: bytes, zero: true, series, legend };
}

/* Of several devices, a line for each; value: of its seconds, among all devices' of the step. */
function deviceChart(title, value) {
  const series = [];
  for (const run of runs) {
    const steps = run.steps.filter((p) => Array.isArray(p.device_seconds) && p.device_seconds.every(Number.isFinite));
    const n = steps.reduce((most, p) => Math.max(most, p.device_seconds.length), 0);
    for (let d = 0; d < n; d++) {
      const own = steps.filter((p) => d < p.device_seconds.length);
      series.push({ name: label(run, `device ${d}`), color: color(series.length), points: own.map((p) => [xOf(p), value(p.device_seconds[d], p.device_seconds)]) });
    }
  }
  return { title, format: seconds, zero: true, series, legend: series };
}

/* Of lists with a number for each layer with experts, the worst. */
function worstChart(title, key, format, even) {
  const series = runs.map((run, i) => ({ name: label(run, "worst layer"), color: color(i),
    points: run.steps.filter((p) => Array.isArray(p[key])).map((p) => [xOf(p), Math.max(...p[key])]) }));
  const x = runs.length === 1 && even > 0 ? series[0].points.map((p) => p[0]) : [];
  if (x.length) series.push({ name: "all equally busy", color: color(1), points: x.map((v) => [v, even]), dots: x.length < 2 });
  return { title, format, zero: true, series, legend: series };
}
const percent = (v) => Number.isFinite(v) ? trim(100 * v) + "%" : "–";
function expertsCard(run) {
  const p = run.steps.filter((q) => Array.isArray(q.busiest_expert)).pop(), e = run.plan && run.plan.experts;
  if (!p || !e || !Array.isArray(e.layers)) return null;
  const rows = p.busiest_expert.map((share, i) => [e.layers[i], share, (p.idle_experts || [])[i] || 0]).sort((a, b) => b[1] - a[1] || b[2] - a[2]).slice(0, 12);
  return titled(label(run, `Experts at step ${p.step}, the fullest layers`),
    tableOf(["layer", "rows of its busiest expert", `idle of ${e.of_a_layer}`], rows.map(([l, s, n]) => [String(l), percent(s), String(n)])));
}

function tile(text, what) {
  const t = html("div", "tile");
  t.append(html("b", "", text), html("span", "", what));
  return t;
}
function drawTiles(run) {
  const p = last(run.steps) || {}, e = last(run.evals), tiles = [tile(trim(p.loss ?? NaN) === "NaN" ? "–" : trim(p.loss), "loss")];
  if (e) tiles.push(tile(trim(e.eval_loss), "evaluation loss"));
  if (e && Number.isFinite(e.eval_accuracy)) tiles.push(tile((100 * e.eval_accuracy).toFixed(1) + "%", "tokens right"));
  if (p.tokens_per_second) tiles.push(tile(count(p.tokens_per_second), "tokens a second"));
  if ("flops_per_second" in p) tiles.push(tile(count(p.flops_per_second), "FLOP/s"));
  if ("grad_norm" in p) tiles.push(tile(trim(p.grad_norm), "gradient norm"));
  if ("num_input_tokens_seen" in p) tiles.push(tile(count(p.num_input_tokens_seen), "tokens so far"));
  if ("epoch" in p) tiles.push(tile(trim(p.epoch), "epoch"));
  if (p.skipped_steps) tiles.push(tile(count(p.skipped_steps), "steps skipped, not finite"));
  byId("tiles").replaceChildren(...tiles);
}
function drawProgress(run) {
  const p = last(run.steps), total = run.plan && run.plan.n_steps;
  byId("progress").hidden = !p || !total;
  if (!p || !total) return;
  byId("fill").style.width = 100 * Math.min(1, p.step / total) + "%";
  const recent = run.steps.slice(-20).filter((q) => q.step_seconds), mean = recent.reduce((s, q) => s + q.step_seconds, 0) / recent.length;
  const left = p.step < total && recent.length ? `, about ${seconds(mean * (total - p.step))} left` : "";
  byId("progress-text").textContent = `step ${p.step} of ${total}${left}`;
}

function tableOf(heads, rows) {
  const t = html("table"), tr = (cells, name) => { const r = html("tr"); cells.forEach((c, i) => r.append(html(name, i ? "number" : "", c))); return r; };
  t.append(tr(heads, "th"), ...rows.map((r) => tr(r, "td")));
  return t;
}
function titled(title, ...content) {
  const card = html("div", "card");
  card.append(html("h2", "", title), ...content);
  return card;
}
/* Buffers, the program itself, and on the CPU what the plan calls the device. */
function plannedHost(plan) {
  return plan.host_bytes + (plan.base_host_bytes || 0) + (plan.checkpoint_host_bytes || 0) + (/^CPU/.test(plan.device) ? plan.device_bytes : 0);
}
function planCard(run) {
  const plan = run.plan, p = last(run.steps) || {};
  const timed = run.steps.filter((q) => q.step_seconds).map((q) => q.step_seconds).sort((a, b) => a - b);
  const rows = [["device memory", bytes(plan.device_bytes), bytes(p.device_memory_peak)], ["host memory", bytes(plannedHost(plan)), bytes(p.host_memory_peak)]];
  if (plan.predicted_seconds > 0) rows.unshift(["seconds a step", seconds(plan.predicted_seconds), seconds(timed[timed.length >> 1])]);
  return titled(runs.length > 1 ? `Planned and measured: ${run.name}` : "Planned and measured", tableOf(["", "planned", "measured"], rows));
}
/* Buffers by kind ("master.hi 3" is of kind master.hi), largest first. */
function buffersCard(run, place) {
  const kinds = new Map();
  for (const b of run.plan.buffers || []) {
    if (b.place !== place) continue;
    const kind = b.name.split(" ")[0];
    kinds.set(kind, (kinds.get(kind) || 0) + b.bytes);
  }
  const list = [...kinds].filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]).slice(0, 12);
  if (!list.length) return null;
  const bars = list.map(([kind, n]) => {
    const row = html("div", "bar"), cell = html("span"), bar = html("div");
    bar.style.width = 100 * n / list[0][1] + "%";
    cell.append(bar);
    row.append(html("span", "", kind), cell, html("span", "", bytes(n)));
    return row;
  });
  return titled(`Memory by plan, ${place}${runs.length > 1 ? ": " + run.name : ""}`, ...bars);
}
function textCard(title, text, folded) {
  const pre = html("pre", "", text);
  let card;
  if (folded) {
    const d = html("details");
    d.append(html("summary", "", title), pre);
    card = html("div", "card wide");
    card.append(d);
  } else {
    card = titled(title, pre);
    card.classList.add("wide");
    requestAnimationFrame(() => { pre.scrollTop = pre.scrollHeight; });
  }
  return card;
}
function sampleText(s) {
  const list = s.samples || (Array.isArray(s.sample) ? s.sample : [s.sample]);
  return list.map((x) => typeof x === "string" ? x : `${x.prompt ?? ""}\n→ ${x.answer ?? x.text ?? x.completion ?? ""}`).join("\n\n");
}
let openDetails = false;
function drawDetails() {
  const box = byId("details");
  const opened = box.querySelector("details");
  if (opened) openDetails = opened.open;
  const cards = [];
  for (const run of runs) {
    if (run.plan) cards.push(planCard(run), buffersCard(run, "device"), buffersCard(run, "host"), expertsCard(run));
    if (run.sample) cards.push(textCard(label(run, `Sample at step ${run.sample.step}`), sampleText(run.sample)));
    if (run.log) cards.push(textCard(label(run, "Log, its end"), run.log));
    if (run.config) cards.push(textCard(label(run, "Configuration"), run.config, true));
  }
  box.replaceChildren(...cards.filter(Boolean));
  const folded = box.querySelector("details");
  if (folded) folded.open = openDetails;
}

const cards = new Map();
function chart(key, spec) {
  if (!cards.has(key)) { const c = html("div", "card"); cards.set(key, c); byId("charts").append(c); }
  draw(cards.get(key), spec);
}
function redraw() {
  if (!runs.length) return;
  byId("title").textContent = runs.map((r) => r.name).join(" and ");
  document.title = "megatrain: " + byId("title").textContent;
  byId("smoothing-text").textContent = byId("smoothing").value;
  byId("legend").replaceChildren(...(runs.length > 1 ? [legendOf(runs.map((r, i) => ({ name: r.name, color: color(i) })))] : []));
  if (runs.length === 1) { drawTiles(runs[0]); drawProgress(runs[0]); }
  chart("loss", lossChart());
  chart("speed", speedChart());
  chart("rate", plainChart("Learning rate", "learning_rate", trim, true));
  chart("norm", plainChart("Gradient norm", "grad_norm", trim, true));
  if (has("router_aux_loss")) chart("balance", plainChart("Load-balancing loss", "router_aux_loss", trim, false));
  if (has("busiest_expert")) {
    const e = runs[0].plan && runs[0].plan.experts;
    chart("busiest", worstChart("Rows of the busiest expert", "busiest_expert", percent, e ? e.of_a_row / e.of_a_layer : 0));
    chart("idle", worstChart("Idle experts", "idle_experts", count, 0));
  }
  runs.forEach((run, i) => chart("time" + i, timeChart(run)));
  if (has("device_seconds")) {
    chart("devices", deviceChart("A step on each device", (own) => own));
    chart("slowest", deviceChart("Each device's wait for the slowest", (own, all) => Math.max(...all) - own));
  }
  chart("memory", memoryChart());
}

/* -- a run that goes on ---------------------------------------------------------------------------- */

let missed = 0;
async function ask() {
  const run = runs[0];
  try {
    const answer = await fetch("data?from=" + run.bytes, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.status);
    const got = await answer.json(), before = run.bytes;
    takeRun(run, got);
    missed = 0;
    byId("status").className = "status live";
    byId("status").textContent = "live";
    if (run.bytes !== before || got.from !== before) redraw();
    drawDetails();
  } catch {
    if (++missed >= 3) { byId("status").className = "status"; byId("status").textContent = "the run has ended, or does not answer"; }
  }
  setTimeout(ask, missed ? 3000 : 1000);
}

data.runs.forEach(newRun);
byId("version").textContent = data.version;
for (const id of ["x-axis", "smoothing", "log-loss"]) byId(id).addEventListener("input", redraw);
let resized = 0;
addEventListener("resize", () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(redraw); });
redraw();
drawDetails();
if (data.live) ask();
