// The boosts as sliders that can be removed, and the choice of a category to boost.

import { BOOST_LIMITS, drawSlider } from "./dials.js";
import { element, iconButton, signed } from "./words.js";

const STEP = 0.5;
const at = (id) => document.getElementById(id);

const words = (by) => (by ? `${by < 0 ? "lowered" : "raised"} ${signed(by)}` : "as it is");

export class BoostControls {
  // `onSet` gets the key of a boost and its number, `onRemove` the key, `onAdd` a column and a value.
  constructor({ onAdd, onSet, onRemove }) {
    Object.assign(this, { onAdd, onSet, onRemove });
    this.rows = new Map(); // key -> { dial, slider, output }
    this.choice = null;
  }

  // Shows the choice of a category above the boosts; `known` are the values, by column.
  offer(known) {
    this.choice?.remove();
    this.choice = null;
    const pairs = Object.entries(known).flatMap(([column, values]) => values.map((value) => [column, value]));
    if (!pairs.length) return;
    const options = pairs.map((pair) => element("option", { text: pair.join(": ") }));
    this.select = element("select", { id: "boost-category", children: options });
    this.button = element("button", {
      type: "button", class: "quiet", text: "Boost", "aria-label": "Boost this category",
      on: { click: () => this.onAdd(...pairs[this.select.selectedIndex]) },
    });
    const label = element("label", { for: "boost-category", text: "Boost a category" });
    this.choice = element("div", { class: "dial with-button", children: [label, this.select, this.button] });
    at("boosts").before(this.choice);
  }

  // Rows stay as long as the boosts are the same, so that a slider keeps the focus.
  draw(dials) {
    const names = ({ boosts }) => JSON.stringify([...boosts].map(([key, { name }]) => [key, name]));
    if (names(dials) !== this.names) {
      this.names = names(dials);
      this.rows = new Map([...dials.boosts].map(([key, { name }], place) => [key, this.row(key, name, place)]));
      at("boosts").replaceChildren(...[...this.rows.values()].map(({ dial }) => dial));
    }
    for (const [key, { slider, output }] of this.rows) {
      const { by } = dials.boosts.get(key);
      drawSlider(slider, output, BOOST_LIMITS, by, words(by));
    }
    if (this.button) this.button.disabled = dials.areBoostsFull;
  }

  row(key, name, place) {
    const [min, max] = BOOST_LIMITS;
    const slider = element("input", {
      id: `boost-${place}`, type: "range", min, max, step: STEP,
      on: { input: () => this.onSet(key, slider.valueAsNumber) },
    });
    const output = element("output", { for: slider.id });
    const remove = iconButton("cross", `Remove the boost of ${name}`, () => {
      this.onRemove(key);
      const next = at("boosts").children[place] ?? at("boosts").lastElementChild;
      (next?.querySelector("button") ?? at("next")).focus({ preventScroll: true });
    });
    const label = element("label", { for: slider.id, text: `Boost ${name}`, title: name });
    return { dial: element("div", { class: "dial boost", children: [label, output, remove, slider] }), slider, output };
  }

  focus(key) {
    this.rows.get(key)?.slider.focus();
  }
}
