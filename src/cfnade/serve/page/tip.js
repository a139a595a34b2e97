// One small panel with details of the element that is pointed at, focused or tapped.

const panel = document.getElementById("tip");
let owner = null;

function show(target, lines) {
  hideTip();
  owner = target;
  target.setAttribute("aria-describedby", "tip"); // only while it describes this one
  const head = document.createElement("b");
  head.textContent = lines[0];
  panel.replaceChildren(head, ...lines.slice(1).map((line) => {
    const row = document.createElement("div");
    row.textContent = line;
    return row;
  }));
  panel.hidden = false;
  const at = target.getBoundingClientRect();
  const size = panel.getBoundingClientRect();
  const room = document.documentElement.clientWidth - size.width - 8;
  const isAbove = at.bottom + size.height + 12 > window.innerHeight; // below, the name stays in sight
  panel.style.left = `${window.scrollX + Math.max(8, Math.min(at.left, room))}px`;
  panel.style.top = `${window.scrollY + (isAbove ? at.top - size.height - 6 : at.bottom + 6)}px`;
}

export function hideTip() {
  owner?.removeAttribute("aria-describedby");
  owner = null;
  panel.hidden = true;
}

// Gives an element a tip; `lines` is called when it is shown.
export function withTip(target, lines) {
  target.addEventListener("pointerenter", () => show(target, lines()));
  target.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") hideTip();
  });
  target.addEventListener("focus", () => show(target, lines()));
  target.addEventListener("blur", hideTip);
  target.addEventListener("click", () => show(target, lines()));
  return target;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
document.addEventListener("pointerdown", (event) => {
  if (owner && !owner.contains(event.target)) hideTip();
});
