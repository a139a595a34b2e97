// Dials: a tilt towards popular items, diversity, pinned items, boosts, and limits by category.
// They live in the page's link.

import { numbered, signed } from "./words.js";

const LIMITS = { popularity: [-1, 1], diversity: [0, 0.9] };
const LETTERS = { popularity: "p", diversity: "v" };
export const BOOST_LIMITS = [-10, 10];
const BOOST = 1; // of what is boosted anew
const MOST_BOOSTS = 20;
const at = (id) => document.getElementById(id);

export class Dials {
  constructor() {
    this.popularity = 0;
    this.diversity = 0;
    this.pins = []; // ids as text, first place first
    this.boosts = new Map(); // "b*ID" -> { item, name, by }, "c*COLUMN*VALUE" -> { column, value, name, by }
    this.limits = new Map(); // column -> most items of each of its categories
  }

  get isZero() {
    return !this.popularity && !this.diversity && !this.pins.length && !this.boosts.size && !this.limits.size;
  }

  isPinned(item) {
    return this.pins.includes(String(item));
  }

  pin(item) {
    this.pins.push(String(item));
  }

  unpin(item) {
    this.pins = this.pins.filter((id) => id !== String(item));
  }

  get areBoostsFull() {
    return this.boosts.size >= MOST_BOOSTS;
  }

  isBoosted(item) {
    return this.boosts.has(`b*${item}`);
  }

  boost(item, name, by = BOOST) {
    this.boosts.set(`b*${item}`, { item: String(item), name, by });
  }

  unboost(item) {
    this.boosts.delete(`b*${item}`);
  }

  boostCategory(column, value, by = BOOST) {
    this.boosts.set(`c*${column}*${value}`, { column, value, name: `${column}: ${value}`, by });
  }

  // `most` is null for no limit.
  limit(column, most) {
    if (most === null) this.limits.delete(column);
    else this.limits.set(column, most);
  }

  // Pinned and boosted items.
  get items() {
    return [...this.pins, ...[...this.boosts.values()].map(({ item }) => item).filter((item) => item !== undefined)];
  }

  forget(item) {
    this.unpin(item);
    this.unboost(item);
  }

  // As the service takes it: null changes nothing.
  asked() {
    if (this.isZero) return null;
    const boosts = [...this.boosts.values()];
    const byColumn = Map.groupBy(boosts.filter(({ item }) => item === undefined), ({ column }) => column);
    return {
      popularity: this.popularity,
      diversity: this.diversity,
      pin: this.pins,
      boost: Object.fromEntries(boosts.filter(({ item }) => item !== undefined).map(({ item, by }) => [item, by])),
      boost_category: Object.fromEntries([...byColumn].map(([column, some]) =>
        [column, Object.fromEntries(some.map(({ value, by }) => [value, by]))])),
      at_most: Object.fromEntries(this.limits),
    };
  }

  // The part of a link: p=POPULARITY, v=DIVERSITY, t=ID for each pinned item, b=NUMBER*ID and
  // c=NUMBER*COLUMN*VALUE for each boost, k=MOST*COLUMN for each limit.
  toLink() {
    const parts = new URLSearchParams();
    for (const [name, letter] of Object.entries(LETTERS)) {
      if (this[name]) parts.append(letter, this[name]);
    }
    for (const id of this.pins) parts.append("t", id);
    for (const [key, { by }] of this.boosts) parts.append(key[0], `${by}${key.slice(1)}`);
    for (const [column, most] of this.limits) parts.append("k", `${most}*${column}`);
    return parts.toString();
  }

  // `model` is the answer of /v1/model, `n` the length of a list; unknown categories are dropped.
  static fromLink(text, model, n) {
    const dials = new Dials();
    const parts = new URLSearchParams(text);
    for (const [name, letter] of Object.entries(LETTERS)) {
      const [low, high] = LIMITS[name];
      const value = Number(parts.get(letter));
      if (Number.isFinite(value)) dials[name] = within(low, value, high);
    }
    dials.pins = [...new Set(parts.getAll("t"))].slice(0, n);
    const known = new Map(Object.entries(model.filters).flatMap(([column, values]) =>
      values.map((value) => [`${column}*${value}`, [column, value]])));
    for (const [letter, part] of parts) {
      const [number, rest] = numbered(part) ?? [];
      if (number === undefined) continue;
      const by = within(BOOST_LIMITS[0], number, BOOST_LIMITS[1]);
      if (letter === "b" && !dials.areBoostsFull) dials.boost(rest, rest, by);
      if (letter === "c" && !dials.areBoostsFull && known.has(rest)) dials.boostCategory(...known.get(rest), by);
      if (letter === "k" && number >= 1 && n > 1 && model.categories.includes(rest)) {
        dials.limit(rest, within(1, Math.floor(number), n - 1));
      }
    }
    return dials;
  }
}

const within = (low, value, high) => Math.min(high, Math.max(low, value));

const WORDS = {
  popularity: (value) => (value ? `${value < 0 ? "less known" : "popular"} ${signed(value)}` : "as it is"),
  diversity: (value) => (value ? `varied ${signed(value)}` : "as it is"),
};

// The two sliders and the button that sets everything back.
export class DialControls {
  constructor({ onChange, onReset }) {
    for (const [name, [low, high]] of Object.entries(LIMITS)) {
      const slider = at(name);
      slider.min = low;
      slider.max = high;
      slider.addEventListener("input", () => onChange(name, slider.valueAsNumber));
    }
    at("reset").addEventListener("click", onReset);
  }

  draw(dials) {
    for (const [name, limits] of Object.entries(LIMITS)) {
      drawSlider(at(name), at(`${name}-text`), limits, dials[name], WORDS[name](dials[name]));
    }
  }
}

export function drawSlider(slider, output, [low, high], value, text) {
  slider.value = value;
  slider.setAttribute("aria-valuetext", text);
  fill(slider, low, high, value);
  output.textContent = text;
}

// Colours a slider's track between 0 and its value.
function fill(slider, low, high, value) {
  const ends = [0, value].map((end) => (100 * (end - low)) / (high - low)).sort((a, b) => a - b);
  slider.style.setProperty("--from", `${ends[0]}%`);
  slider.style.setProperty("--to", `${ends[1]}%`);
}
