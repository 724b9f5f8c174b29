// The model: the daemon's state, kept up to date by one stream of events, with change listeners.

import { cardOf, dagUrl, id, regionUrl, short, spot, tenantOf, words } from "./dom.js";

/** Milliseconds of silence after which the connection counts as lost; the daemon sends a heartbeat every 5 s. */
const SILENCE_MAX = 12000;
/** Milliseconds before a rejected stream is retried. */
const RETRY = 3000;
/** Most events kept: enough that errors are found among many others. */
const EVENTS = 500;
/** Milliseconds for which all points of a chart are kept, and the distance of older ones. */
const FINE = 120000;
const COARSE = 15000;
/** Milliseconds without a change after which a chart's line goes on as it was. */
const UNCHANGED = 2000;
/** Milliseconds for which points are kept, as long as the daemon keeps them. */
const KEPT = 3600000;
/** Milliseconds after which a tenant's usage is asked for again. */
const ACCOUNT_AGE = 60000;
/** Points after which older ones are thinned out. */
const POINTS = 600;
/** Number of owner colours. */
const COLOURS = 8;

const kinds = ["card", "region", "dag", "shares"];
/** Severity of the states that a change observed here leads to; all others are information. */
const SEVERITY = { FAULTY: "ERROR", FAILED: "ERROR", DEGRADED: "WARNING", UNKNOWN: "WARNING" };

/** What follows from the resources; computed once after each change, for there may be thousands. */
function derive(model) {
  const [regions, dags] = [new Map(), new Map()];
  const add = (map, key, value) => map.get(key)?.add(value) ?? map.set(key, new Set([value]));
  for (const region of model.regions.values()) add(regions, cardOf(region.name), region);
  for (const dag of model.dags.values())
    for (const stage of dag.stages ?? [])
      for (const chain of stage)
        for (const instance of chain.instances) add(dags, cardOf(instance.region), dag);
  const shortfalls = new Map();
  const tenants = new Set([...model.dags.keys()].map(tenantOf));
  for (const shares of model.shares.values()) {
    tenants.add(id(shares.tenant));
    for (const { dag, shortfallBps } of shares.dags) {
      shortfalls.set(dag, shortfallBps);
      // Programs on processors have no region.
      if (model.dags.has(dag)) add(dags, shares.card, model.dags.get(dag));
    }
  }
  const number = (region) => Number(id(region.name));
  const sorted = [...regions].map(([card, all]) => [card, [...all].sort((a, b) => number(a) - number(b))]);
  const names = [...tenants].sort();
  return {
    regions: new Map(sorted), dags, shortfalls, tenants: names,
    colours: new Map(names.map((name, at) => [name, at % COLOURS])),
  };
}

/** The points of a chart without those that nobody can see. */
function thin(points) {
  const now = Date.now();
  let last = -Infinity;
  return points.filter(([at]) => {
    const stays = now - at < FINE || (now - at < KEPT && at - last >= COARSE);
    if (stays) last = at;
    return stays;
  });
}

class Model {
  cards = new Map();
  regions = new Map();
  dags = new Map();
  shares = new Map();
  events = [];
  /** Points by tenant and card: [ms, space, busiest, load, served]. */
  history = new Map();
  /** Since when the daemon answers, without a break. */
  #liveSince = Infinity;
  /** waiting, live, lost. */
  link = "waiting";
  ready = false;
  /** Why a host of a fleet cannot be asked; empty if it can. */
  trouble = "";
  selectedCard = null;
  selectedRegion = null;
  selectedDag = null;
  /** Whether somebody chose the DAG: then no other one takes its place when it is gone. */
  isDagChosen = false;
  /** Highlighted nodes of the selected DAG, and the regions that they use. */
  pointed = null;
  lit = new Set();
  #listeners = [];
  #scheduled = false;
  #source = null;
  #lastMessage = 0;
  #observed = 0;
  #requested = new Set();
  /** Usage and promises by tenant, and when each was asked for. */
  accounts = new Map();
  #accountsAsked = new Map();
  #derived = null;

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
    if (link === "live") this.#liveSince = Date.now();
    this.changed();
  }

  #open() {
    const source = new EventSource("stream");
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
    on("trouble", ({ message }) => {
      this.trouble = message;
      if (message) this.#setLink("lost");
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
    this.#derived = null;
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
    this.#derived = null;
    if (kind === "shares") this.#addPoint(value);
    if (!this.ready || value.state === before) return;
    if (kind === "region") {
      const held = value.bitstream && value.state !== "FREE" ? `, ${id(value.bitstream)}` : "";
      const about = { card: cardOf(value.name), regions: [id(value.name)] };
      this.#observe("REGION", `${spot(value.name)}: ${words(value.state)}${held}`, about, value.state);
    } else if (kind === "dag") {
      this.#observe("DAG", `${short(value.name)}: ${words(value.state)}`, { dag: value.name }, value.state);
    }
  }

  #remove(kind, name) {
    this.#map(kind)?.delete(name);
    this.#derived = null;
    if (kind === "dag") this.#observe("DAG", `${short(name)}: deleted`, {});
    if (kind === "shares") this.history.delete(name);
  }

  /** Adds a change observed here to the daemon's own events. */
  #observe(kind, message, about, state) {
    this.#observed += 1;
    const severity = SEVERITY[state] ?? "INFO";
    this.#log({ key: `s${this.#observed}`, at: Date.now(), kind, severity, message, ...about });
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
    const last = points.at(-1);
    // It was as before until now, if the daemon answered all the time: only changes are told.
    const isKnown = last && last[0] >= this.#liveSince;
    if (isKnown && Date.now() - last[0] > UNCHANGED) points.push([Date.now() - 1, ...last.slice(1)]);
    points.push([Date.now(), shares.spacePpm, shares.busiestPpm, load, served]);
    this.history.set(shares.name, points.length > POINTS ? thin(points) : points);
  }

  /** Loads a tenant's history from before this page was opened, once. */
  async loadHistory(tenant) {
    if (this.#requested.has(tenant)) return;
    this.#requested.add(tenant);
    const reply = await ask(`history/${tenant}`);
    for (const { name, points } of reply ?? []) {
      const here = this.history.get(name) ?? [];
      const first = here[0]?.[0] ?? Infinity;
      this.history.set(name, thin([...points.filter(([at]) => at < first), ...here]));
    }
    this.changed();
  }

  /** Tenants by the share of the cards that they hold, the largest first. */
  largestTenants() {
    const shares = new Map();
    for (const { tenant, spacePpm } of this.shares.values())
      shares.set(tenant, Math.max(shares.get(tenant) ?? 0, spacePpm));
    return [...shares].sort(([a, one], [b, other]) => other - one || a.localeCompare(b)).map(([tenant]) => tenant);
  }

  /** Asks for a tenant's usage and promises, once a minute while they are shown. */
  async loadAccount(tenant) {
    const now = performance.now();
    if (now - (this.#accountsAsked.get(tenant) ?? -Infinity) < ACCOUNT_AGE) return;
    this.#accountsAsked.set(tenant, now);
    const account = await ask(`account/${tenant}`);
    if (account) this.accounts.set(tenant, account);
    else this.accounts.delete(tenant);
    this.changed();
  }

  /** The resources were changed from outside. */
  invalidate() {
    this.#derived = null;
  }

  #all() {
    return (this.#derived ??= derive(this));
  }

  /** What is missing of promises, in bit/s, by DAG. */
  shortfalls() {
    return this.#all().shortfalls;
  }

  /** CSS class of an owner's colour. */
  colour(tenant) {
    return `owner-${this.#all().colours.get(tenant) ?? 0}`;
  }

  /** The regions of a card, by number. */
  regionsOf(card) {
    return this.#all().regions.get(card) ?? [];
  }

  /** The DAGs that are on a card. */
  dagsOf(card) {
    return [...(this.#all().dags.get(card) ?? [])];
  }

  selectCard(name) {
    this.selectedCard = name;
    this.changed();
  }

  /** Opens a region, or closes the open one. */
  selectRegion(name) {
    this.selectedRegion = name;
    if (name) this.selectedCard = cardOf(name);
    this.#note();
    this.changed();
  }

  /** Shows a DAG because somebody chose it. */
  selectDag(name) {
    this.showDag(name);
    this.isDagChosen = true;
    this.#note();
    this.changed();
  }

  /** Shows a DAG. What was highlighted belonged to the one before. */
  showDag(name) {
    if (this.selectedDag === name) return;
    this.selectedDag = name;
    this.isDagChosen = false;
    this.point(null, []);
  }

  /** The address of this page says what is chosen, so that it can be sent to others. */
  #note() {
    const dag = this.isDagChosen && this.selectedDag ? dagUrl(this.selectedDag).slice(1) : "";
    const region = this.selectedRegion ? regionUrl(this.selectedRegion).slice(1) : "";
    const chosen = [dag, region].filter(Boolean).join("&");
    history.replaceState(null, "", chosen ? `#${chosen}` : location.pathname);
  }

  /** Shows what an address says; returns the part of the page that has it. */
  follow(hash) {
    const said = new URLSearchParams(hash.slice(1));
    const [dag, region, card] = ["dag", "region", "card"].map((key) => said.get(key));
    const [tenant, name] = dag?.split("/") ?? [];
    if (name) this.selectDag(`tenants/${tenant}/dags/${name}`);
    const [of, number] = region?.split("/") ?? [];
    if (number) this.selectRegion(`cards/${of}/regions/${number}`);
    if (card) this.selectCard(`cards/${card}`);
    return number || card ? "regions" : name ? "dags" : null;
  }

  /** Highlights nodes of the selected DAG and the regions that they use; `null` for none. */
  point(nodes, regions) {
    this.pointed = nodes;
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
