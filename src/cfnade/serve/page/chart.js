// How the scores of all items spread: a small histogram, with where the list's own items lie.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 60;
const logit = (p) => Math.log(p / (1 - p));

export function drawSpread(spread, recommendations) {
  const figure = document.getElementById("spread");
  const total = spread?.counts.reduce((sum, n) => sum + n, 0) ?? 0;
  figure.hidden = total === 0;
  if (!total) return;
  const { low, high, counts } = spread;
  const last = recommendations.at(-1);
  const cut = last ? logit(Math.min(Math.max(last.probability, 1e-7), 1 - 1e-7)) : high;
  const width = (high - low) / counts.length || 1;
  const most = Math.max(...counts);
  const chart = document.getElementById("chart");
  chart.setAttribute("viewBox", `0 0 ${counts.length} ${HEIGHT}`);
  chart.replaceChildren(
    ...counts.map((count, place) => {
      const bar = document.createElementNS(SVG, "rect");
      // A root shows the few at the right end beside the many in the middle.
      const height = count ? Math.max(2, HEIGHT * Math.sqrt(count / most)) : 0;
      bar.setAttribute("x", place + 0.08);
      bar.setAttribute("y", HEIGHT - height);
      bar.setAttribute("width", 0.84);
      bar.setAttribute("height", height);
      if (low + (place + 1) * width > cut) bar.setAttribute("class", "top");
      return bar;
    }),
  );
  document.getElementById("chart-text").textContent =
    `Where the scores of all ${total.toLocaleString("en")} items lie; the list is the coloured end.`;
}
