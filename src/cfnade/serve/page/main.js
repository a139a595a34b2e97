// The page: a history on one side, recommendations on the other; the address holds both's state.

import * as api from "./api.js";
import { drawSpread } from "./chart.js";
import { DialControls, Dials } from "./dials.js";
import { Entries } from "./entries.js";
import { History } from "./history.js";
import { RecommendationList } from "./list.js";
import { Search } from "./search.js";
import { useTheme } from "./theme.js";
import { element, valueText } from "./words.js";

const N_RECOMMENDED = 10;
const N_POPULAR = 8;
const RETRY_MS = 3000;
const at = (id) => document.getElementById(id);

let history = new History();
let dials = new Dials();
let asking = null;
let retry = null;
let nRecommended = N_RECOMMENDED;
let nPopular = N_POPULAR;
let turn = 0; // counts changes of the history; answers to an earlier one are dropped

const list = new RecommendationList({
  onAdd: (item) => change(() => history.add(item)),
  onDislike: (item) => change(() => {
    history.add(item);
    history.entries.get(String(item.item)).disliked = true;
  }),
  onPin: (id) => change(() => (dials.isPinned(id) ? dials.unpin(id) : dials.pin(id))),
  onError: showError,
});
const controls = new DialControls({
  onChange: (name, value) => {
    dials[name] = value;
    changed({ isStep: true });
  },
  onReset: () => {
    toList();
    change(() => (dials = new Dials()));
  },
});
const entries = new Entries({
  onChange: (isStep = false, isTyped = false) => changed({ isStep, isTyped }),
  onPoint: (id) => list.point(id),
});
const search = new Search({ onChoose: (item) => change(() => history.add(item)), onError: showError });

function change(act) {
  act();
  changed();
}

// The focus goes to the list when the button that had it goes away.
function toList() {
  at("next").focus({ preventScroll: true });
}

// Updates the page after a change. A step of a count or a dial adds no browser history.
function changed({ isStep = false, isTyped = false, isRestored = false } = {}) {
  const started = performance.now();
  turn += 1;
  if (!isTyped) entries.draw(history);
  [...history.entries.keys()].forEach((id) => dials.unpin(id)); // they have it
  controls.draw(dials);
  at("start").hidden = !history.isEmpty;
  at("clear").hidden = history.isEmpty;
  const link = [history.toLink(), dials.toLink()].filter(Boolean).join("&");
  const place = link ? `#${link}` : location.pathname + location.search;
  if (!isRestored) window.history[isStep ? "replaceState" : "pushState"](null, "", place);
  return update(started);
}

async function update(started = performance.now()) {
  clearTimeout(retry);
  asking?.abort();
  const mine = (asking = new AbortController());
  const evidence = history.evidence();
  const slow = setTimeout(() => list.wait(true), 250);
  try {
    const answer = await api.recommend(evidence, dials.asked(), nRecommended, mine.signal);
    if (mine !== asking) return;
    list.draw(answer.recommendations, answer.spread, evidence, dials);
    drawSpread(answer.spread, answer.recommendations);
    at("notice").hidden = true;
    requestAnimationFrame(() => setTimeout(() => report(answer, performance.now() - started)));
  } catch (error) {
    if (error.name !== "AbortError" && mine === asking) showError(error);
  } finally {
    clearTimeout(slow);
    if (mine === asking) list.wait(false);
  }
}

// Announces the change to screen readers, with the time it took.
function report(answer, ms) {
  const [first] = answer.recommendations;
  const best = first ? `First is ${first.name}, ${valueText(first)}.` : "Nothing is left.";
  at("status").textContent = `${best} On screen after ${Math.round(ms)} ms.`;
  document.body.dataset.answers = Number(document.body.dataset.answers ?? 0) + 1;
  document.body.dataset.milliseconds = ms.toFixed(1);
}

// Shows an error, keeps the last answer, and tries again if that may help.
function showError(error) {
  const isKey = error.code === "unauthorized";
  const isPassing = error.code === "unreachable" || error.code === "overloaded";
  at("notice-title").textContent = isKey ? "This service asks for a key." : sentence(error.message);
  at("notice-text").textContent = isKey ? "" : isPassing ? "What you see is the last answer. Trying again …" : sentence(error.fix ?? "");
  at("key-form").hidden = !isKey;
  at("retry").hidden = isKey || error.code === "note";
  at("notice").hidden = false;
  clearTimeout(retry);
  if (isPassing) retry = setTimeout(begin, RETRY_MS);
}

function sentence(text) {
  const start = text.charAt(0).toUpperCase() + text.slice(1);
  return !start || /[.!?…]$/.test(start) ? start : `${start}.`;
}

// Names the items of a link and drops unknown ones; returns their number.
async function name(restored, turned) {
  if (restored.isEmpty && !turned.pins.length) return 0;
  const found = await api.lookUp([...restored.entries.keys(), ...turned.pins]);
  for (const item of found.items) Object.assign(restored.entries.get(String(item.item)) ?? {}, item);
  for (const id of found.unknown) {
    restored.remove(id);
    turned.unpin(id);
  }
  return found.unknown.length;
}

async function restore() {
  const restored = History.fromLink(location.hash.slice(1));
  const turned = Dials.fromLink(location.hash.slice(1), nRecommended);
  const mine = (turn += 1);
  try {
    const nUnknown = await name(restored, turned);
    if (mine !== turn) return; // changed meanwhile, or another link was followed
    history = restored;
    dials = turned;
    await changed({ isRestored: true });
    if (nUnknown && turn === mine + 1) showUnknown(nUnknown);
  } catch (error) {
    if (mine === turn) showError(error);
  }
}

function showUnknown(n) {
  showError({ code: "note", message: `${n} ${n === 1 ? "item of this link is" : "items of this link are"} not in this model`, fix: "The others are shown" });
}

async function begin() {
  try {
    const model = await api.model();
    nRecommended = Math.min(N_RECOMMENDED, model.limits.n);
    nPopular = Math.min(N_POPULAR, model.limits.n);
    search.most = Math.min(search.most, model.limits.n);
    list.nSimilar = Math.min(list.nSimilar, model.limits.n);
    await Promise.all([restore(), introduce(model)]);
  } catch (error) {
    showError(error);
  }
}

async function introduce(model) {
  try {
    const popular = await api.search("", nPopular);
    at("model").textContent = `${model.name} · ${model.n_items.toLocaleString("en")} items`;
    at("model").title = `version ${model.version}, loaded ${model.loaded_at}`;
    at("popular").replaceChildren(...popular.items.map((item) => element("li", {
      children: [element("button", {
        type: "button", class: "chip", text: item.name,
        on: {
          click: () => {
            toList();
            change(() => history.add(item));
          },
        },
      })],
    })));
  } catch {
    // `restore` asks the same service and shows what is wrong.
  }
}

at("clear").addEventListener("click", () => {
  toList();
  change(() => (history = new History()));
});
at("retry").addEventListener("click", begin);
at("dismiss").addEventListener("click", () => (at("notice").hidden = true));
at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  api.useKey(at("key").value.trim());
  at("notice").hidden = true;
  begin();
});
at("link").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    at("link").textContent = "Copied";
  } catch {
    at("link").textContent = "In address bar";
  }
  setTimeout(() => (at("link").textContent = "Copy link"), 1500);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input")) {
    event.preventDefault();
    at("search").focus();
  }
});
addEventListener("popstate", restore);
useTheme(at("theme"));
begin();
