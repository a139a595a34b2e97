// A small histogram of the scores of all items, with the recommended ones coloured.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 60;

export function drawSpread(spread, recommendations) {
  const figure = document.getElementById("spread");
  const total = spread?.counts.reduce((sum, n) => sum + n, 0) ?? 0;
  figure.hidden = total === 0;
  if (!total) return;
  const { low, high, counts } = spread;
  const width = (high - low) / counts.length || 1;
  const last = counts.length - 1;
  const listed = new Set(recommendations.map(({ score }) => Math.max(0, Math.min(last, Math.floor((score - low) / width)))));
  const most = Math.max(...counts);
  const chart = document.getElementById("chart");
  chart.setAttribute("viewBox", `0 0 ${counts.length} ${HEIGHT}`);
  chart.replaceChildren(
    ...counts.map((count, place) => {
      const bar = document.createElementNS(SVG, "rect");
      // The square root keeps the few items at the right end visible.
      const height = count ? Math.max(2, HEIGHT * Math.sqrt(count / most)) : 0;
      bar.setAttribute("x", place + 0.08);
      bar.setAttribute("y", HEIGHT - height);
      bar.setAttribute("width", 0.84);
      bar.setAttribute("height", height);
      if (listed.has(place)) bar.setAttribute("class", "top");
      return bar;
    }),
  );
  document.getElementById("chart-text").textContent =
    `Scores of all ${total.toLocaleString("en")} items; those of the list are coloured.`;
}
