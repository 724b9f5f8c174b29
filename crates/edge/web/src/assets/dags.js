// DAGs: the list, and the selected DAG's graph, mapping and explanation.

import {
  byId, h, id, keyed, rate, regionUrl, remake, setAttr, setText, short, spot, tenantOf, words,
} from "./dom.js";
import { draw } from "./graph.js";
import { ask } from "./model.js";

/** Milliseconds before a failed explanation is requested again. */
const RETRY = 3000;
/** Requested explanations, by DAG and version. */
const reasons = new Map();
/** Milliseconds before the diagnosis of the selected DAG is requested again. */
const DIAGNOSE = 2000;
/** The last diagnosis: its DAG, when it was requested, and what was found. */
const diagnosed = { name: null, at: -Infinity, found: null };

function matching(model, filter) {
  const missing = model.shortfalls();
  const lacks = (dag) => missing.get(dag.name) ?? 0;
  // Those below their promise come first.
  const dags = [...model.dags.values()].sort((a, b) => lacks(b) - lacks(a) || a.name.localeCompare(b.name));
  const matches = (dag) => `${short(dag.name)} ${words(dag.state)}`.includes(filter);
  return filter ? dags.filter(matches) : dags;
}

export function showList(model, filter) {
  const missing = model.shortfalls();
  const dags = matching(model, filter);
  const isShown = dags.some((dag) => dag.name === model.selectedDag);
  // Of a DAG that somebody chose the page says that it is gone; what a filter hides makes place for what it shows.
  const isGone = model.isDagChosen && !model.dags.has(model.selectedDag) && !filter;
  if (!isShown && !isGone) model.showDag(dags[0]?.name ?? null);
  const list = byId("dag-list");
  list.dataset.none = model.dags.size
    ? `no DAG matches “${filter}”`
    : "There is no DAG yet. Tenants create them with `snicctl dag create -f FILE`.";
  showCounts(model, dags);
  keyed(list, dags, (dag) => dag.name,
    (dag) => h("li", { role: "option", onclick: () => model.selectDag(dag.name) },
      h("span", { class: "name" }), h("span", { class: "pill" }), h("span", { class: "muted" })),
    (item, dag) => {
      const [name, state, rates] = item.children;
      const selected = dag.name === model.selectedDag;
      setAttr(item, "id", `dag-${dag.uid}`);
      setAttr(item, "aria-selected", selected);
      setAttr(name, "class", `name ${model.colour(tenantOf(dag.name))}`);
      setText(name, short(dag.name));
      setAttr(state, "data-dag", dag.state);
      setText(state, words(dag.state));
      const lacks = missing.get(dag.name);
      setText(rates, `${rate(dag.bps)}, ${lacks ? `${rate(lacks)} missing` : `limit ${rate(dag.rateBps)}`}`);
      if (selected) setAttr(list, "aria-activedescendant", item.id);
    });
}

/** How many DAGs there are, and what is wrong with some. */
function showCounts(model, dags) {
  const all = [...model.dags.values()];
  const missing = model.shortfalls();
  const of = (what, some) => {
    const number = all.filter(some).length;
    return number > 0 && `${number} ${what}`;
  };
  setText(byId("dag-counts"), [
    all.length > 0 && `${all.filter((dag) => dag.state === "READY").length} of ${all.length} ready`,
    of("below their promise", (dag) => (missing.get(dag.name) ?? 0) > 0),
    of("without a place", (dag) => dag.state === "FAILED"),
    dags.length < all.length && `${dags.length} shown`,
  ].filter(Boolean).join(" · "));
}

/** Keyboard navigation of the list. */
export function listKeys(model, event) {
  const items = [...event.currentTarget.children];
  const at = items.findIndex((item) => item.dataset.key === model.selectedDag);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
  if (to == null || !items[to]) return;
  event.preventDefault();
  model.selectDag(items[to].dataset.key);
  items[to].scrollIntoView({ block: "nearest" });
}

/** The regions of each node. */
function places(dag) {
  const found = new Map();
  for (const stage of dag.stages ?? [])
    for (const chain of stage)
      for (const node of chain.nodes)
        found.set(node, chain.instances.map((instance) => instance.region));
  return found;
}

export function showDag(model) {
  const dag = model.dags.get(model.selectedDag);
  const { rateBps, ...lasting } = dag ?? {};
  const gone = !dag && model.isDagChosen && model.selectedDag;
  remake(byId("dag-head"), [lasting.name, lasting.state, lasting.reason, lasting.warnings, rateBps, lasting.latencyCycles, gone],
    () => (dag ? head(model, dag) : gone && h("p", { class: "muted" }, `There is no DAG ${short(gone)}.`)));
  showDiagnosis(model, dag);
  const upright = byId("graph").clientWidth < 560;
  const point = (nodes, regions) => model.point(nodes, regions);
  const shape = dag && [dag.name, dag.nodes, dag.edges, dag.stages, upright];
  remake(byId("graph"), shape, () => dag && draw(dag, places(dag), upright, point));
  remake(byId("mapping"), dag && [dag.name, dag.stages], () => dag && mapping(dag, point));
  showWhy(model, dag);
  for (const element of byId("dag").querySelectorAll("[data-nodes]")) {
    const nodes = element.dataset.nodes.split(" ");
    const lit = model.pointed?.some((node) => nodes.includes(node));
    element.classList.toggle("lit", Boolean(lit));
  }
}

function head(model, dag) {
  return [
    h("h3", {}, h("span", { class: `dot ${model.colour(tenantOf(dag.name))}` }), short(dag.name)),
    h("span", { class: "pill", "data-dag": dag.state }, words(dag.state)),
    h("p", { class: "muted" }, [
      `${rate(dag.bps)} guaranteed`,
      `limit ${rate(dag.rateBps)}`,
      dag.form ? words(dag.form) : "",
      dag.latencyCycles ? `${dag.latencyCycles} cycles` : "",
      `uid ${dag.uid}`,
    ].filter(Boolean).join(" · ")),
    dag.reason && h("p", { class: "warning" }, dag.reason),
    ...(dag.warnings ?? []).map((text) => h("p", { class: "warning" }, text)),
  ];
}

function mapping(dag, point) {
  if (!dag.stages) return h("p", { class: "muted" }, "Not mapped to a card.");
  return h("ol", { class: "stages", "aria-label": "Passes through the scheduler" },
    dag.stages.map((stage) => h("li", {}, stage.map((chain) => band(chain, point)))));
}

/** A chain and its regions, with the tasks that its packets use and skip. */
function band(chain, point) {
  const regions = chain.instances.map((instance) => instance.region);
  const on = () => point(chain.nodes, regions);
  return h("div", {
    class: "chain", tabindex: 0, "data-nodes": chain.nodes.join(" "), role: "group",
    "aria-label": `Chain ${chain.nodes.join(", ")} in ${regions.map((r) => `region ${spot(r)}`).join(", ")}`,
    onmouseenter: on, onfocus: on,
  },
  chain.instances.map((instance) => h("div", { class: "place" },
    h("a", { class: "where", href: regionUrl(instance.region) }, `region ${spot(instance.region)}`),
    h("span", { class: "band" }, instance.slots.map((slot) =>
      h("span", { class: slot.used ? "task used" : "task skipped", title: slot.used ? "used" : "skipped" },
        slot.node || id(slot.nt) || "skipped"))),
    h("span", { class: "muted" }, rate(instance.bps)))));
}

/** Why the selected DAG is as fast as it is; requested again while it is shown. */
function showDiagnosis(model, dag) {
  const panel = byId("diagnosis");
  if (!dag) return remake(panel, null, () => []);
  const isNew = diagnosed.name !== dag.name;
  if (isNew || performance.now() - diagnosed.at > DIAGNOSE) {
    Object.assign(diagnosed, { name: dag.name, at: performance.now(), found: isNew ? null : diagnosed.found });
    ask(`diagnosis/${dag.name}`).then((found) => {
      // Another DAG may have been selected meanwhile.
      if (diagnosed.name !== dag.name) return;
      diagnosed.found = found;
      model.changed();
    });
  }
  return remake(panel, [dag.name, diagnosed.found], () => diagnosed.found && diagnosis(diagnosed.found));
}

function diagnosis(found) {
  const { limit } = found;
  const used = (bps) => (bps == null ? "" : `${rate(bps)} of `);
  const place = limit && (limit.nt ? `${id(limit.nt)} in region ${spot(limit.region)}` : limit.resource);
  const users = found.users.filter(([, bps]) => bps > 0); // most that may use it are idle
  const nanoseconds = found.latency.reduce((sum, [, , ns]) => sum + ns, 0);
  return [
    h("h3", {}, `Is it fast? ${words(found.verdict)}`),
    h("p", {}, found.summary),
    h("p", { class: "muted" }, [
      `promised ${rate(found.promisedBps)}`,
      `offered ${rate(found.offeredBps)}`,
      `admitted ${rate(found.admittedBps)}`,
      `served ${rate(found.servedBps)}`,
      ...found.drops.map(([cause, packets]) => `${packets} ${words(cause)}`),
    ].join(" · ")),
    found.ntDrops.length > 0 && h("p", { class: "muted" }, "dropped by tasks so far: "
      + found.ntDrops.map(([nt, reason, packets]) => `${id(nt)} ${packets} ${words(reason)}`).join(", ")),
    found.latency.length > 0 && h("p", { class: "muted" }, `${nanoseconds} ns without waiting: `
      + found.latency.map(([part, , ns]) => `${part} ${ns}`).join(", ")),
    found.latencySummary && h("p", {}, found.latencySummary),
    found.measured && h("p", { class: "muted" }, `measured at p99, of ${found.measured.samples} sampled: `
      + found.measured.parts.filter(([, , , , longest]) => longest > 0)
        .map(([kind, node, , p99]) => `${node || words(kind)} ${p99} ns`).join(", ")),
    limit && h("p", { class: limit.limiting ? "warning" : "muted" },
      `${limit.limiting ? "limited by" : "nothing limits it now; the fullest is"} ${place}: ${used(limit.usedBps)}${rate(limit.capacityBps)}`),
    limit && users.length > 0 && h("p", { class: "muted" }, "used by "
      + users.map(([dag, bps]) => `${short(dag)} ${rate(bps)}`).join(", ")
      + (found.usersLeftOut > 0 ? ` and ${found.usersLeftOut} more` : "")),
    found.remedies.length > 0 && h("ul", {}, found.remedies.map((remedy) => h("li", {}, remedy))),
  ];
}

function showWhy(model, dag) {
  const panel = byId("why");
  if (!dag) return remake(panel, null, () => []);
  const key = JSON.stringify([dag.name, dag.generation, dag.stages]);
  const reason = reasons.get(key);
  if (reason === undefined) {
    reasons.clear();
    reasons.set(key, null);
    ask(`explanation/${dag.name}`).then((found) => {
      if (found) reasons.set(key, found);
      else setTimeout(() => reasons.delete(key), RETRY);
      model.changed();
    });
  }
  return remake(panel, [key, reason ?? null, model.pointed], () => reason && why(reason, model.pointed));
}

/** A score term as text. */
const term = ([name, value, unit]) =>
  `${words(name)} ${unit === "bit/s" ? rate(value) : `${value} ${unit}`}`;

function why(reason, pointed) {
  const concerns = (chain) => !pointed || chain.nodes.some((node) => pointed.includes(node));
  const chains = reason.chains.filter(concerns);
  return [
    h("h3", {}, pointed ? `Why ${pointed.join(", ")} is placed here` : "Why it is mapped this way"),
    !pointed && reason.form && h("p", {}, reason.form),
    chains.map((chain) => h("div", { class: "reason" },
      h("p", {}, h("strong", {}, chain.nodes.join(" → ")), " ",
        chain.chosen.map((place) => [
          h("span", { class: "way" }, words(place.way)), ` in region ${spot(place.region)}, ${rate(place.bps)}`,
          place.score.length > 0 && h("span", { class: "muted" }, ` (${place.score.map(term).join(", ")})`),
          " ",
        ])),
      chain.rejected.length > 0 && h("ul", {}, chain.rejected.map((other) =>
        h("li", {}, h("span", { class: "way not" }, words(other.way)), ` ${other.why}`))))),
    chains.length === 0 && h("p", { class: "muted" }, reason.lines.join(" ")),
  ].flat();
}

/** Clears the highlight. */
export function clearHighlight(model) {
  model.point(null, []);
}
