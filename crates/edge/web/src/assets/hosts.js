// The page of a fleet: its hosts, kept up to date by one stream of events, and its DAGs, read when asked for.

import { byId, count, h, id, keyed, rate, remake, setAttr, setText, short, words } from "./dom.js";

/** Milliseconds of silence after which the connection counts as lost; a heartbeat comes every 5 s. */
const SILENCE_MAX = 12000;
/** Milliseconds before a rejected stream is retried. */
const RETRY = 3000;
/** Most rows that are drawn; the filter finds the others. */
const ROWS_MAX = 500;
const LINK = { waiting: "connecting", live: "live", lost: "no answer, reconnecting" };
/** How a host's condition is marked. */
const MARKS = { LOST: "LOST", SUSPECTED: "LOST", UNKNOWN: "IMPAIRED", BEHIND: "IMPAIRED", IN_STEP: "OK" };

const hosts = new Map();
let [fleet, link, trouble, ready] = [null, "waiting", "", false];
let [source, lastMessage, scheduled] = [null, 0, false];

/** The smaller, the more an operator has to look at the host. */
function rank(host) {
  const away = ["LOST", "SUSPECTED", "UNKNOWN"].indexOf(host.condition);
  if (away >= 0) return away;
  if (host.draining) return 4;
  if (host.cordoned) return 3;
  return host.condition === "BEHIND" ? 5 : 6;
}

const use = (host) => (host.draining ? "draining" : host.cordoned ? "cordoned" : "");
const IN_STATE = {
  all: () => true,
  away: (host) => rank(host) < 3,
  closed: (host) => host.draining || host.cordoned,
  behind: (host) => host.condition === "BEHIND",
};

/** The hosts that are looked for, the worst first. */
function found() {
  const state = document.querySelector("input[name=state]:checked").value;
  const text = byId("filter").value.trim().toLowerCase();
  const said = (host) =>
    `${id(host.name)} ${host.zone}/${host.rack} ${words(host.condition)} ${use(host)} ${host.models.join(" ")}`;
  return [...hosts.values()]
    .filter((host) => IN_STATE[state](host) && said(host).toLowerCase().includes(text))
    .sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name, "en", { numeric: true }));
}

function showHosts() {
  const all = found();
  const none = byId("no-hosts");
  none.hidden = all.length > 0 || !ready;
  setText(none, hosts.size
    ? "No host is in this state and has this text."
    : "There is no host yet. `snicd host-spec` on a host prints what `snicctl fleet host create NAME --from FILE` reads.");
  keyed(byId("host-list"), all.slice(0, ROWS_MAX), (host) => host.name,
    (host) => h("tr", {},
      h("th", { scope: "row" }, h("a", { class: "where", href: `/${host.name}/` }, id(host.name))),
      h("td", {}), h("td", {}, h("span", { class: "pill" })), h("td", {}), h("td", {}), h("td", {}), h("td", {})),
    (row, host) => {
      const [, area, state, how, cards, dags, models] = row.children;
      setText(area, `${host.zone} / ${host.rack}`);
      setAttr(state.firstElementChild, "data-health", MARKS[host.condition]);
      setText(state.firstElementChild, words(host.condition));
      setText(how, use(host));
      setText(cards, host.cardsCordoned ? `${host.cards}, ${host.cardsCordoned} cordoned` : `${host.cards}`);
      setText(dags, host.dags == null ? "–" : count(host.dags));
      setText(models, host.models.join(", "));
    });
  setText(byId("more-hosts"), all.length > ROWS_MAX
    ? `${count(all.length - ROWS_MAX)} more; the filter finds them.` : "");
}

function showFleet() {
  const of = (condition) => [...hosts.values()].filter((host) => host.condition === condition).length;
  const facts = [
    [count(hosts.size), "hosts"],
    [count(of("IN_STEP")), "hosts in step"],
    [count(of("LOST") + of("SUSPECTED")), "hosts not answering", of("LOST") + of("SUSPECTED") > 0 && "bad"],
    ...(fleet ? [
      [count(fleet.cards), "cards"],
      [count(fleet.dags), "DAGs"],
      [count(fleet.unplaced), "DAGs without a place", fleet.unplaced > 0 && "warn"],
      [count(fleet.tenants), "tenants"],
    ] : []),
  ];
  remake(byId("facts"), facts, () => facts.map(([value, what, mark]) =>
    h("div", { class: mark ? `fact ${mark}` : "fact" }, h("dd", {}, value), h("dt", {}, what))));
  const area = (name) => name.replace(/^zones\//, "").replace("/racks/", "/");
  const moves = fleet?.rebalance;
  setText(byId("under-way"), [
    moves && `Rebalance${moves.zone ? ` of ${area(moves.zone)}` : ""}: ${count(moves.moved)} moved, ${count(moves.moving)} moving.`,
    fleet?.drains.length > 0 && `Draining ${fleet.drains.map(area).join(", ")}.`,
  ].filter(Boolean).join(" "));
}

function show() {
  scheduled = false;
  const element = byId("link");
  setText(element, (link === "lost" && trouble) || LINK[link]);
  setAttr(element, "data-state", link);
  // The last state stays visible until everything was sent again.
  if (!ready && link !== "live") return;
  showFleet();
  showHosts();
}

function changed() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(show);
}

function setLink(to) {
  link = to;
  changed();
}

function clear() {
  hosts.clear();
  ready = false;
}

function open() {
  source = new EventSource("/stream");
  const own = source;
  lastMessage = performance.now();
  const on = (name, take) =>
    own.addEventListener(name, (message) => {
      lastMessage = performance.now();
      take(JSON.parse(message.data));
      changed();
    });
  own.addEventListener("open", clear);
  own.addEventListener("error", () => {
    setLink("lost");
    if (own.readyState !== EventSource.CLOSED) return;
    setTimeout(() => {
      if (source === own) source = null;
      connect();
    }, RETRY);
  });
  on("host", (host) => hosts.set(host.name, host));
  on("gone", ({ name }) => hosts.delete(name));
  on("fleet", (value) => { fleet = value; });
  on("reset", clear);
  on("ready", () => {
    [ready, trouble] = [true, ""];
    setLink("live");
  });
  on("trouble", ({ message }) => {
    trouble = message;
    if (message) setLink("lost");
  });
  on("beat", () => {});
}

function close(to) {
  source?.close();
  source = null;
  setLink(to);
}

/** A hidden page holds no connection. */
function connect() {
  if (document.hidden) close("waiting");
  else if (!source) open();
}

let [next, reading] = ["", 0];

/** Reads DAGs: the first page, or one more. */
async function readDags(from) {
  reading += 1;
  const mine = reading;
  const tenant = byId("tenant").value.trim();
  const asked = [tenant || "-", ...(from ? [from] : [])].map(encodeURIComponent).join("/");
  const [list, note] = [byId("dag-list-fleet"), byId("no-dags")];
  let [reply, why] = [null, ""];
  try {
    const answer = await fetch(`/dags/${asked}`);
    if (answer.ok) reply = await answer.json();
    else why = await answer.text();
  } catch {
    why = "The fleet does not answer.";
  }
  if (mine !== reading) return;
  if (!from) list.replaceChildren();
  if (reply) list.append(...reply.dags.map(dagRow));
  next = reply?.next ?? "";
  byId("more").hidden = !next;
  setText(note, why || (list.children.length ? "" : tenant ? `${tenant} has no DAG.` : "There is no DAG."));
}

function dagRow(dag) {
  return h("tr", {},
    h("th", { scope: "row" }, dag.host
      ? h("a", { class: "where", href: `/hosts/${dag.host}/#dag=${short(dag.name)}` }, short(dag.name))
      : short(dag.name)),
    h("td", {}, h("span", { class: "pill", "data-dag": dag.state }, words(dag.state))),
    h("td", {}, rate(dag.bps)),
    h("td", {}, dag.host && h("a", { class: "where", href: `/hosts/${dag.host}/` }, dag.host)),
    h("td", {}, dag.card),
    h("td", { class: "muted" }, dag.why));
}

for (const input of document.querySelectorAll("#hosts input")) input.addEventListener("input", changed);
byId("tenant").addEventListener("change", () => readDags(""));
byId("read").addEventListener("click", () => readDags(""));
byId("more").addEventListener("click", () => readDags(next));
document.addEventListener("visibilitychange", connect);
setInterval(() => {
  if (source && performance.now() - lastMessage > SILENCE_MAX) {
    close("lost");
    connect();
  }
}, 1000);
connect();
readDags("");
