// Shares and rates over the last minutes, up to an hour, as charts and as a table.

import { byId, h, id, keyed, percent, rate, remake, setAttr, setText, svg, words } from "./dom.js";

const SIZE = { height: 190, left: 64, right: 10, top: 10, bottom: 24 };
/** Least and greatest width of a chart; wider figures stretch it. */
const WIDTH = [240, 900];
/** Most tenants drawn; the table has all. */
const DRAWN = 8;
/** Most rows of the table. */
const ROWS_MAX = 100;

/** The next round number above. */
function round(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((top) => top >= value);
}

/** The drawing of a figure, rebuilt if its width differs. */
function frame(figure) {
  const width = Math.min(WIDTH[1], Math.max(WIDTH[0], figure.clientWidth));
  const old = figure.querySelector("svg");
  if (old?.size === width) return old;
  old?.remove();
  const { height, left, right, top, bottom } = SIZE;
  const tick = (share) => {
    const y = top + (height - top - bottom) * (1 - share);
    return svg("g", { class: "tick" },
      svg("path", { d: `M${left} ${y}H${width - right}` }),
      svg("text", { x: left - 8, y: y + 4, class: "value" }));
  };
  const label = (share, text, anchor) =>
    svg("text", { x: left + (width - left - right) * share, y: height - 6, class: anchor }, text);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" },
    [0, 0.5, 1].map(tick),
    label(0, "", "start ago"), label(0.5, "", "middle ago"), label(1, "now", "end"),
    svg("g", { class: "lines" }));
  drawing.size = width;
  figure.append(drawing);
  return drawing;
}

/** The path of a line through its points. What does not change is not told again: it goes on as it was, up to `until`. */
function line(points, column, most, now, until, span, width) {
  const { height, left, right, top, bottom } = SIZE;
  const x = (at) => left + (width - left - right) * (1 - (now - at) / span);
  const y = (value) => top + (height - top - bottom) * (1 - Math.min(1, value / most));
  const seen = points.filter((point) => now - point[0] <= span).map((point) => [point[0], point[column]]);
  const before = points.findLast((point) => now - point[0] > span);
  if (before) seen.unshift([now - span, before[column]]);
  if (seen.length) seen.push([Math.max(until, seen.at(-1)[0]), seen.at(-1)[1]]);
  return seen.map(([at, value], n) => `${n ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
}

/** Draws lines: each has a key, a CSS class, points, and the column to plot. */
function chart(figure, lines, { most, span, until, unit, label }) {
  const drawing = frame(figure);
  const now = Date.now();
  drawing.querySelectorAll(".ago").forEach((text, n) => setText(text, `${span / 60000 / (n + 1)} min ago`));
  setAttr(drawing, "aria-label", label);
  drawing.querySelectorAll(".value").forEach((text, n) => setText(text, unit((most * n) / 2)));
  keyed(drawing.querySelector(".lines"), lines, (line) => line.key,
    () => svg("path", {}),
    (path, { mark, dashed, points, column }) => {
      setAttr(path, "class", `line ${mark}${dashed ? " dashed" : ""}`);
      setAttr(path, "d", line(points, column, most, now, until, span, drawing.size));
    });
}

/** Shows the last `span` milliseconds. */
export function showCharts(model, span) {
  const now = Date.now();
  const all = [...model.shares.values()].sort((a, b) => b.spacePpm - a.spacePpm || a.name.localeCompare(b.name));
  const drawn = all.slice(0, DRAWN);
  for (const shares of drawn) model.loadHistory(shares.tenant);
  const empty = byId("no-shares");
  empty.hidden = all.length > 0;
  setText(empty, all.length ? "" : "No tenant has a DAG on a card.");
  // Nobody knows how it is while the daemon does not answer.
  const until = model.link === "live" ? now : 0;
  const of = (shares) => model.history.get(shares.name) ?? [];
  const mark = (shares) => model.colour(id(shares.tenant));
  const recent = drawn.flatMap(of).filter((point) => now - point[0] <= span);
  const fastest = round(Math.max(1e9, ...recent.map((point) => Math.max(point[3], point[4]))));
  const rates = drawn.flatMap((shares) => [
    { key: `${shares.name} load`, mark: mark(shares), dashed: true, points: of(shares), column: 3 },
    { key: shares.name, mark: mark(shares), points: of(shares), column: 4 },
  ]);
  const summary = (value) => drawn.map((shares) => `${id(shares.tenant)} ${value(shares)}`).join(", ");
  const served = (shares) => shares.dags.reduce((sum, dag) => sum + dag.servedBps, 0);
  chart(byId("rates"), rates,
    { most: fastest, span, until, unit: rate, label: `Served now: ${summary((s) => rate(served(s)))}` });
  const widest = Math.min(1e6, round(Math.max(1e5, ...recent.map((point) => point[1]))));
  const space = drawn.map((shares) =>
    ({ key: shares.name, mark: mark(shares), points: of(shares), column: 1 }));
  chart(byId("space"), space,
    { most: widest, span, until, unit: percent, label: `Share of the card: ${summary((s) => percent(s.spacePpm))}` });
  const tenants = [...new Set(drawn.map((shares) => id(shares.tenant)))].sort();
  remake(byId("tenants"), tenants, () => tenants.map((tenant) =>
    h("li", {}, h("span", { class: `swatch ${model.colour(tenant)}` }), tenant)));
  showTable(all, served);
}

function showTable(all, served) {
  const load = (shares) => shares.dags.reduce((sum, dag) => sum + (dag.loadBps ?? 0), 0);
  const guaranteed = (shares) => shares.dags.reduce((sum, dag) => sum + dag.admittedBps, 0);
  const rows = all.slice(0, ROWS_MAX).map((shares) => [
    id(shares.tenant), id(shares.card), shares.weight, percent(shares.spacePpm), words(shares.limiter),
    `${shares.regionsOwn} + ${(shares.regionsSharedMillis / 1000).toFixed(1)}`,
    rate(guaranteed(shares)), rate(load(shares)), rate(served(shares)),
    percent(shares.timePpm), shares.busiest ? `${shares.busiest} ${percent(shares.busiestPpm)}` : "–",
  ]);
  const heads = ["tenant", "card", "weight", "share", "limited by", "regions: own + shared",
    "guaranteed", "offered", "served", "share in time", "busiest"];
  const more = all.length - rows.length;
  setText(byId("more-shares"), more > 0 ? `and ${more} more: \`snicctl fairness get\`` : "");
  remake(byId("table"), rows, () => [
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map(([tenant, ...rest]) =>
      h("tr", {}, h("th", { scope: "row" }, tenant), rest.map((cell) => h("td", {}, cell))))),
  ]);
}
