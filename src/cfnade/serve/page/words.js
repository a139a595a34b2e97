// Numbers as people read them, and small pieces of the page.

// The number of an entry: the probability, or the score if it has none.
export const shown = (entry) => entry.probability ?? entry.score;

export const called = (entry) => (entry.probability == null ? "score" : "probability");

// That number as text: "12.3 %", or "4.567" for a score.
export const valueText = (entry, value = shown(entry)) =>
  entry.probability == null ? decimal(value) : `${percent(value)}\u00a0%`;

// And for an effect on it: "+1.2", which is in points for a probability.
export const effectText = (effect) =>
  effect.probability == null ? decimal(effect.score, true) : percent(effect.probability, true);

function decimal(value, sign = false) {
  const text = value.toFixed(3).replace("-", "−");
  return sign && value > 0 ? `+${text}` : text;
}

// A number with its sign, as short as it can be: "+0.3".
export const signed = (value) => `${value > 0 ? "+" : ""}${Number(value.toFixed(2))}`.replace("-", "−");

export function percent(value, sign = false) {
  const points = 100 * value;
  const size = Math.abs(points);
  const text = points.toFixed(size >= 1 || size === 0 ? 1 : 2).replace("-", "−");
  return sign && points > 0 ? `+${text}` : text;
}

// "NUMBER*REST" of a link as its two parts; null if there is no number.
export function numbered(text) {
  const star = text.indexOf("*");
  const number = Number(text.slice(0, star));
  return star > 0 && Number.isFinite(number) ? [number, text.slice(star + 1)] : null;
}

// The smallest round share that holds the best probability, so that bars can be compared.
export function fullBar(best) {
  return [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8].find((s) => best <= s) ?? 1;
}

// An address that may be followed or loaded: the service checks them, and the page again.
function isWebAddress(text) {
  return /^https?:\/\//i.test(text ?? "") && URL.canParse(text);
}

// The picture of an item, if it has one that loads; its name stands beside it, so it needs no words.
export function picture(item) {
  if (!isWebAddress(item.image)) return [];
  const image = element("img", {
    class: "picture", alt: "", width: 40, height: 40, loading: "lazy", decoding: "async",
    referrerpolicy: "no-referrer", src: item.image,
    on: { error: () => image.remove() },
  });
  return [image];
}

// A link to the page of an item, if it has one.
export function outward(item) {
  if (!isWebAddress(item.link)) return [];
  const label = `Open the page of ${item.name} in a new tab`;
  return [element("a", {
    class: "icon outward", href: item.link, target: "_blank", rel: "noopener noreferrer",
    "aria-label": label, title: label, children: [icon("outward")],
  })];
}

export function element(tag, { text, children = [], on = {}, ...attributes } = {}) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  if (text != null) made.textContent = text;
  for (const [event, listener] of Object.entries(on)) made.addEventListener(event, listener);
  made.append(...children);
  return made;
}

const SHAPES = {
  minus: "M5 12h14",
  plus: "M12 5v14M5 12h14",
  cross: "M6 6l12 12M18 6L6 18",
  outward: "M14 5h5v5M19 5l-8 8M10 6H6v12h12v-4",
  pin: "M9 3h6l-1 6 4 4H6l4-4zM12 13v8",
  down: "M17 3v11M17 14l-4.5 7c-1.4 0-2.4-1-2.4-2.4V15H5.4a2 2 0 0 1-2-2.3l1.1-7A2 2 0 0 1 6.5 4H17M17 4h3v10h-3",
};

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", SHAPES[name]);
  svg.append(path);
  return svg;
}

export function iconButton(name, label, onClick, attributes = {}) {
  return element("button", {
    type: "button", class: "icon", "aria-label": label, title: label,
    on: { click: onClick }, children: [icon(name)], ...attributes,
  });
}
