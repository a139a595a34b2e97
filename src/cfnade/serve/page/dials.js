// Dials: a tilt towards popular items, diversity, and pinned items. They live in the page's link.

import { signed } from "./words.js";

const LIMITS = { popularity: [-1, 1], diversity: [0, 0.9] };
const LETTERS = { popularity: "p", diversity: "v" };
const at = (id) => document.getElementById(id);

export class Dials {
  constructor() {
    this.popularity = 0;
    this.diversity = 0;
    this.pins = []; // ids as text, first place first
  }

  get isZero() {
    return !this.popularity && !this.diversity && !this.pins.length;
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

  // As the service takes it: null changes nothing.
  asked() {
    if (this.isZero) return null;
    return { popularity: this.popularity, diversity: this.diversity, pin: this.pins };
  }

  // The part of a link: p=POPULARITY, v=DIVERSITY and t=ID for each pinned item.
  toLink() {
    const parts = new URLSearchParams();
    for (const [name, letter] of Object.entries(LETTERS)) {
      if (this[name]) parts.append(letter, this[name]);
    }
    for (const id of this.pins) parts.append("t", id);
    return parts.toString();
  }

  static fromLink(text, mostPins) {
    const dials = new Dials();
    const parts = new URLSearchParams(text);
    for (const [name, letter] of Object.entries(LETTERS)) {
      const [low, high] = LIMITS[name];
      const value = Number(parts.get(letter));
      if (Number.isFinite(value)) dials[name] = Math.min(high, Math.max(low, value));
    }
    dials.pins = [...new Set(parts.getAll("t"))].slice(0, mostPins);
    return dials;
  }
}

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
    for (const name of Object.keys(LIMITS)) {
      const text = WORDS[name](dials[name]);
      at(name).value = dials[name];
      at(name).setAttribute("aria-valuetext", text);
      fill(at(name), ...LIMITS[name], dials[name]);
      at(`${name}-text`).textContent = text;
    }
  }
}

// Colours a slider's track between 0 and its value.
function fill(slider, low, high, value) {
  const ends = [0, value].map((end) => (100 * (end - low)) / (high - low)).sort((a, b) => a - b);
  slider.style.setProperty("--from", `${ends[0]}%`);
  slider.style.setProperty("--to", `${ends[1]}%`);
}
