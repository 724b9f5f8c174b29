// What the daemon tells, kept up to date: one stream, and who wants to know when something changed.

import { id, short, tenantOf, words } from "./dom.js";

/** Milliseconds without a word after which the daemon is taken for gone; it beats every 5 s. */
const SILENT = 12000;
/** Pause before a refused stream is tried again. */
const AGAIN = 3000;
/** Events that are shown. */
const EVENTS = 200;
/** Points of a chart that are kept: two minutes, two a second. */
const POINTS = 240;
/** Colours there are for owners. */
const COLOURS = 8;

const kinds = ["card", "region", "dag", "shares"];

class Model {
  cards = new Map();
  regions = new Map();
  dags = new Map();
  shares = new Map();
  events = [];
  /** Points by tenant and card: [ms, space, busiest, load, served]. */
  history = new Map();
  /** waiting, live, lost. */
  link = "waiting";
  ready = false;
  selectedRegion = null;
  selectedDag = null;
  /** Regions that what is pointed at uses. */
  lit = new Set();
  #listeners = [];
  #planned = false;
  #source = null;
  #heard = 0;
  #seen = 0;
  #asked = new Set();

  /** Calls a function after each change, at most once a frame. */
  watch(listener) {
    this.#listeners.push(listener);
  }

  changed() {
    if (this.#planned) return;
    this.#planned = true;
    requestAnimationFrame(() => {
      this.#planned = false;
      for (const listener of this.#listeners) listener(this);
    });
  }

  start() {
    // A page that nobody sees takes no connection.
    document.addEventListener("visibilitychange", () => this.#turn());
    setInterval(() => this.#check(), 1000);
    this.#turn();
  }

  #turn() {
    if (document.hidden) this.#close("waiting");
    else if (!this.#source) this.#open();
  }

  #close(link) {
    this.#source?.close();
    this.#source = null;
    this.#become(link);
  }

  #become(link) {
    if (this.link === link) return;
    this.link = link;
    this.changed();
  }

  #open() {
    const source = new EventSource("/stream");
    this.#source = source;
    this.#heard = performance.now();
    const on = (name, take) =>
      source.addEventListener(name, (message) => {
        this.#heard = performance.now();
        take(JSON.parse(message.data));
        this.changed();
      });
    source.addEventListener("open", () => this.#clear());
    source.addEventListener("error", () => {
      this.#become("lost");
      if (source.readyState === EventSource.CLOSED) this.#later(source);
    });
    for (const kind of kinds) on(kind, (value) => this.#put(kind, value));
    on("gone", ({ kind, name }) => this.#gone(kind, name));
    on("event", (event) => this.#log({ ...event, key: `e${event.number}` }));
    on("reset", () => this.#clear());
    on("ready", () => {
      this.ready = true;
      this.#become("live");
    });
    on("beat", () => {});
  }

  #later(source) {
    setTimeout(() => {
      if (this.#source === source) this.#source = null;
      this.#turn();
    }, AGAIN);
  }

  #check() {
    if (this.#source && performance.now() - this.#heard > SILENT) {
      this.#close("lost");
      this.#turn();
    }
    this.changed();
  }

  /** All is told again. */
  #clear() {
    for (const map of [this.cards, this.regions, this.dags, this.shares]) map.clear();
    this.events = this.events.filter((event) => event.number == null);
    this.#asked.clear();
    this.ready = false;
  }

  #map(kind) {
    return { card: this.cards, region: this.regions, dag: this.dags, shares: this.shares }[kind];
  }

  #put(kind, value) {
    const map = this.#map(kind);
    const before = map.get(value.name)?.state;
    map.set(value.name, value);
    if (kind === "shares") this.#measured(value);
    if (!this.ready || value.state === before) return;
    if (kind === "region") {
      const [card, number] = [value.name.split("/")[1], id(value.name)];
      const held = value.bitstream && value.state !== "FREE" ? `, ${id(value.bitstream)}` : "";
      this.#noted("REGION", `${card} region ${number}: ${words(value.state)}${held}`);
    } else if (kind === "dag") {
      this.#noted("DAG", `${short(value.name)}: ${words(value.state)}`, value.name);
    }
  }

  #gone(kind, name) {
    this.#map(kind)?.delete(name);
    if (kind === "dag") this.#noted("DAG", `${short(name)}: deleted`, name);
    if (kind === "shares") this.history.delete(name);
  }

  /** A change that was seen here, among the daemon's own events. */
  #noted(kind, message, dag = "") {
    this.#seen += 1;
    this.#log({ key: `s${this.#seen}`, at: Date.now(), kind, message, dag });
  }

  #log(event) {
    // They come in order but for the first ones.
    const at = this.events.findIndex((other) => other.at <= event.at);
    this.events.splice(at < 0 ? this.events.length : at, 0, event);
    this.events.length = Math.min(this.events.length, EVENTS);
  }

  #measured(shares) {
    const sum = (field) => shares.dags.reduce((sum, dag) => sum + (dag[field] ?? 0), 0);
    const [load, served] = [sum("loadBps"), sum("servedBps")];
    const points = this.history.get(shares.name) ?? [];
    points.push([Date.now(), shares.spacePpm, shares.busiestPpm, load, served]);
    this.history.set(shares.name, points.slice(-POINTS));
    if (!this.#asked.has(shares.tenant)) {
      this.#asked.add(shares.tenant);
      this.#past(shares.tenant);
    }
  }

  /** What a tenant had before this page was opened. */
  async #past(tenant) {
    const reply = await ask(`/history/${tenant}`);
    for (const { name, points } of reply ?? []) {
      const here = this.history.get(name) ?? [];
      const first = here[0]?.[0] ?? Infinity;
      const since = Date.now() - 120000;
      const before = points.filter(([at]) => at < first && at > since);
      this.history.set(name, [...before, ...here].slice(-POINTS));
    }
    this.changed();
  }

  /** Tenants there are, by name. */
  tenants() {
    const names = new Set([...this.dags.keys()].map(tenantOf));
    for (const shares of this.shares.values()) names.add(id(shares.tenant));
    return [...names].sort();
  }

  /** The class of an owner's colour. */
  colour(tenant) {
    return `owner-${Math.max(0, this.tenants().indexOf(tenant)) % COLOURS}`;
  }

  regionsOf(card) {
    const regions = [...this.regions.values()];
    const number = (region) => Number(id(region.name));
    return regions
      .filter((region) => region.name.startsWith(`${card}/`))
      .sort((a, b) => number(a) - number(b));
  }

  selectRegion(name) {
    this.selectedRegion = this.selectedRegion === name ? null : name;
    this.changed();
  }

  selectDag(name) {
    this.selectedDag = name;
    this.lit = new Set();
    this.changed();
  }

  light(regions) {
    this.lit = new Set(regions);
    this.changed();
  }
}

/** Asks the daemon once; `null` where it does not answer well. */
export async function ask(path) {
  try {
    const reply = await fetch(path);
    return reply.ok ? await reply.json() : null;
  } catch {
    return null;
  }
}

export const model = new Model();
