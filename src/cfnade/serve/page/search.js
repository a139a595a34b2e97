// The search box: a list of items that follows what is typed, for mouse, keyboard and screen reader.

import * as api from "./api.js";
import { element, picture } from "./words.js";

const N_SHOWN = 12;

export class Search {
  constructor(at, { onChoose, onError }) {
    this.input = at("search");
    this.list = at("found");
    this.onChoose = onChoose;
    this.onError = onError;
    this.items = [];
    this.active = -1;
    this.asking = null;
    this.most = N_SHOWN; // or what the service gives at most
    this.none = at("none-found");
    this.input.addEventListener("input", () => this.look());
    this.input.addEventListener("focus", () => this.look());
    this.input.addEventListener("blur", () => this.close());
    this.input.addEventListener("keydown", (event) => this.onKey(event));
    this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // keep the focus
    this.list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.choose(Number(option.dataset.place));
    });
  }

  async look() {
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    const words = this.input.value.trim();
    try {
      const found = await api.search(words.slice(0, 100), this.most, asking.signal);
      if (asking === this.asking && document.activeElement === this.input) this.show(found, words);
    } catch (error) {
      if (error.name !== "AbortError") this.onError(error);
    }
  }

  show(found, words) {
    this.items = found.items;
    this.active = this.items.length && words ? 0 : -1;
    const rows = this.items.map((item, place) => this.option(item, place, words));
    const more = found.n_found - rows.length;
    this.list.replaceChildren(...rows);
    this.list.hidden = !rows.length;
    // Text that is no option stands beside the list, where screen readers announce it.
    const text = rows.length ? `${more.toLocaleString("en")} more: type on` : `No item is called “${words}”.`;
    this.none.textContent = rows.length && !more ? "" : text;
    this.input.setAttribute("aria-expanded", String(rows.length > 0));
    this.mark();
  }

  option(item, place, words) {
    const children = [...picture(item), element("span", { children: marked(item.name, words) })];
    if (String(item.item) !== item.name) children.push(element("small", { text: item.item }));
    return element("li", { role: "option", id: `${this.list.id}-${place}`, "data-place": place, children });
  }

  mark() {
    [...this.list.querySelectorAll("[role=option]")].forEach((option, place) => {
      option.setAttribute("aria-selected", String(place === this.active));
      if (place === this.active) option.scrollIntoView({ block: "nearest" });
    });
    if (this.active >= 0) this.input.setAttribute("aria-activedescendant", `${this.list.id}-${this.active}`);
    else this.input.removeAttribute("aria-activedescendant");
  }

  onKey(event) {
    const n = this.items.length;
    if (event.key === "Escape") {
      this.close();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (this.list.hidden) this.look();
      else if (n) this.active = (this.active + (event.key === "ArrowDown" ? 1 : n - 1 + (this.active < 0))) % n;
      this.mark();
    } else if (event.key === "Enter" && this.active >= 0 && !this.list.hidden) {
      event.preventDefault();
      this.choose(this.active);
    }
  }

  choose(place) {
    const item = this.items[place];
    if (!item) return;
    this.input.value = "";
    this.close();
    this.onChoose(item);
  }

  close() {
    this.asking?.abort();
    this.asking = null;
    this.list.hidden = true;
    this.none.textContent = "";
    this.active = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }
}

// A name with the part that was typed set apart.
function marked(name, words) {
  const at = words ? name.toLowerCase().indexOf(words.toLowerCase()) : -1;
  if (at < 0) return [name];
  const end = at + words.length;
  return [name.slice(0, at), element("mark", { text: name.slice(at, end) }), name.slice(end)];
}
