// Numbers as people read them, and small pieces of the page.

// The value shown for a recommendation or an effect: of the honest probability where the model has one, else of its score.
export const shown = (told) => told.calibrated ?? told.probability;

// What that value is called.
export const called = (told) => (told.calibrated == null ? "score" : "probability");

export function percent(value, sign = false) {
  const points = 100 * value;
  const size = Math.abs(points);
  const text = points.toFixed(size >= 1 || size === 0 ? 1 : 2).replace("-", "−");
  return sign && points > 0 ? `+${text}` : text;
}

// The smallest round share that holds the best value, so that bars are long enough to compare.
export function fullBar(best) {
  return [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8].find((s) => best <= s) ?? 1;
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
