// The model: the daemon's state, kept up to date by one stream of events, with change listeners.

import { id, short, tenantOf, words } from "./dom.js";

/** Milliseconds of silence after which the connection counts as lost; the daemon sends a heartbeat every 5 s. */
const SILENCE_MAX = 12000;
/** Milliseconds before a rejected stream is retried. */
const RETRY = 3000;
/** Most events shown. */
const EVENTS = 200;
/** Points kept per chart: two minutes at two per second. */
const POINTS = 240;
/** Number of owner colours. */
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
  /** Regions used by the highlighted nodes. */
  lit = new Set();
  #listeners = [];
  #scheduled = false;
  #source = null;
  #lastMessage = 0;
  #observed = 0;
  #requested = new Set();

  /** Calls a function after each change, at most once per frame. */
  watch(listener) {
    this.#listeners.push(listener);
  }

  changed() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      for (const listener of this.#listeners) listener(this);
    });
  }

  start() {
    // A hidden page holds no connection.
    document.addEventListener("visibilitychange", () => this.#connectIfVisible());
    setInterval(() => this.#check(), 1000);
    this.#connectIfVisible();
  }

  #connectIfVisible() {
    if (document.hidden) this.#close("waiting");
    else if (!this.#source) this.#open();
  }

  #close(link) {
    this.#source?.close();
    this.#source = null;
    this.#setLink(link);
  }

  #setLink(link) {
    if (this.link === link) return;
    this.link = link;
    this.changed();
  }

  #open() {
    const source = new EventSource("/stream");
    this.#source = source;
    this.#lastMessage = performance.now();
    const on = (name, take) =>
      source.addEventListener(name, (message) => {
        this.#lastMessage = performance.now();
        take(JSON.parse(message.data));
        this.changed();
      });
    source.addEventListener("open", () => this.#clear());
    source.addEventListener("error", () => {
      this.#setLink("lost");
      if (source.readyState === EventSource.CLOSED) this.#retry(source);
    });
    for (const kind of kinds) on(kind, (value) => this.#put(kind, value));
    on("gone", ({ kind, name }) => this.#remove(kind, name));
    on("event", (event) => this.#log({ ...event, key: `e${event.number}` }));
    on("reset", () => this.#clear());
    on("ready", () => {
      this.ready = true;
      this.#setLink("live");
    });
    on("beat", () => {});
  }

  #retry(source) {
    setTimeout(() => {
      if (this.#source === source) this.#source = null;
      this.#connectIfVisible();
    }, RETRY);
  }

  #check() {
    if (this.#source && performance.now() - this.#lastMessage > SILENCE_MAX) {
      this.#close("lost");
      this.#connectIfVisible();
    }
    this.changed();
  }

  /** The daemon sends everything again. */
  #clear() {
    for (const map of [this.cards, this.regions, this.dags, this.shares]) map.clear();
    this.events = this.events.filter((event) => event.number == null);
    this.#requested.clear();
    this.ready = false;
  }

  #map(kind) {
    return { card: this.cards, region: this.regions, dag: this.dags, shares: this.shares }[kind];
  }

  #put(kind, value) {
    const map = this.#map(kind);
    const before = map.get(value.name)?.state;
    map.set(value.name, value);
    if (kind === "shares") this.#addPoint(value);
    if (!this.ready || value.state === before) return;
    if (kind === "region") {
      const [card, number] = [value.name.split("/")[1], id(value.name)];
      const held = value.bitstream && value.state !== "FREE" ? `, ${id(value.bitstream)}` : "";
      this.#observe("REGION", `${card} region ${number}: ${words(value.state)}${held}`);
    } else if (kind === "dag") {
      this.#observe("DAG", `${short(value.name)}: ${words(value.state)}`, value.name);
    }
  }

  #remove(kind, name) {
    this.#map(kind)?.delete(name);
    if (kind === "dag") this.#observe("DAG", `${short(name)}: deleted`, name);
    if (kind === "shares") this.history.delete(name);
  }

  /** Adds a change observed here to the daemon's own events. */
  #observe(kind, message, dag = "") {
    this.#observed += 1;
    this.#log({ key: `s${this.#observed}`, at: Date.now(), kind, message, dag });
  }

  #log(event) {
    // Only the initial events arrive out of order.
    const at = this.events.findIndex((other) => other.at <= event.at);
    this.events.splice(at < 0 ? this.events.length : at, 0, event);
    this.events.length = Math.min(this.events.length, EVENTS);
  }

  #addPoint(shares) {
    const sum = (field) => shares.dags.reduce((sum, dag) => sum + (dag[field] ?? 0), 0);
    const [load, served] = [sum("loadBps"), sum("servedBps")];
    const points = this.history.get(shares.name) ?? [];
    points.push([Date.now(), shares.spacePpm, shares.busiestPpm, load, served]);
    this.history.set(shares.name, points.slice(-POINTS));
    if (!this.#requested.has(shares.tenant)) {
      this.#requested.add(shares.tenant);
      this.#loadHistory(shares.tenant);
    }
  }

  /** Loads a tenant's history from before this page was opened. */
  async #loadHistory(tenant) {
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

  /** All tenants, sorted by name. */
  tenants() {
    const names = new Set([...this.dags.keys()].map(tenantOf));
    for (const shares of this.shares.values()) names.add(id(shares.tenant));
    return [...names].sort();
  }

  /** What is missing of promises, in bit/s, by DAG. */
  shortfalls() {
    const all = [...this.shares.values()].flatMap((shares) => shares.dags);
    return new Map(all.map((dag) => [dag.dag, dag.shortfallBps]));
  }

  /** CSS class of an owner's colour. */
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

/** Fetches JSON from the daemon; `null` on any failure. */
export async function ask(path) {
  try {
    const reply = await fetch(path);
    return reply.ok ? await reply.json() : null;
  } catch {
    return null;
  }
}

export const model = new Model();
