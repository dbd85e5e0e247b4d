// A matrix of all pairs of systems, colored by the corrected p-value of their difference and by its direction.

const SMALLEST_CELL = 4, LARGEST_CELL = 22, LABELED_CELL = 12, WIDEST = 760; // pixels
const PAIR_LEVELS = [[0.1, 1], [0.2, 0.75], [1, 0.5]]; // p below this fraction of alpha: opacity of the cell

function makePairs(canvas, tip, { onSelect }) {
  let matrix = null; // {names, order, pAt, gapAt, lower, alpha, digits}
  let cell = 0, margin = 0;

  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Positive where the row's system is better than the column's.
  const advantage = (row, column) => (matrix.lower ? -1 : 1) * matrix.gapAt(row, column);

  function draw() {
    if (!matrix) return;
    const count = matrix.order.length, width = Math.min(canvas.parentElement.clientWidth, WIDEST);
    if (!width) return;
    const labeled = Math.floor((width - 120) / count) >= LABELED_CELL;
    margin = labeled ? 120 : 0;
    cell = Math.max(SMALLEST_CELL, Math.min(LARGEST_CELL, Math.floor((width - margin) / count)));
    const side = margin + cell * count, ratio = devicePixelRatio || 1;
    canvas.style.width = `${side}px`;
    canvas.style.height = `${cell * count}px`;
    canvas.width = Math.round(side * ratio);
    canvas.height = Math.round(cell * count * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, side, side);
    const [better, worse, neutral] = ["--accent", "--mark", "--line"].map(color);
    const gap = cell > 6 ? 1 : 0;
    matrix.order.forEach((row, y) => matrix.order.forEach((column, x) => {
      const p = matrix.pAt(row, column);
      if (row === column || !Number.isFinite(p)) return;
      const level = PAIR_LEVELS.find(([fraction]) => p < fraction * matrix.alpha);
      pen.globalAlpha = level ? level[1] : 0.6;
      pen.fillStyle = !level ? neutral : advantage(row, column) > 0 ? better : worse;
      pen.fillRect(margin + x * cell, y * cell, cell - gap, cell - gap);
    }));
    pen.globalAlpha = 1;
    if (!labeled) return;
    pen.font = `12px ${getComputedStyle(canvas).fontFamily}`;
    pen.fillStyle = color("--ink");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    matrix.order.forEach((row, y) => pen.fillText(fit(pen, matrix.names[row], margin - 10), margin - 8, (y + 0.5) * cell));
  }

  function pairAt(event) {
    if (!matrix) return null;
    const row = matrix.order[Math.floor(event.offsetY / cell)], column = matrix.order[Math.floor((event.offsetX - margin) / cell)];
    return event.offsetX < margin || row === undefined || column === undefined || row === column ? null : [row, column];
  }

  canvas.addEventListener("pointermove", event => {
    const pair = pairAt(event);
    if (!pair) return tip.hide();
    const [row, column] = pair, p = matrix.pAt(row, column);
    tip.show({
      title: `${matrix.names[row]} minus ${matrix.names[column]}`,
      values: [["difference", show(matrix.gapAt(row, column), matrix.digits, true)], ["corrected p", Number.isFinite(p) && p < 0.00005 ? "< 0.0001" : show(p)]],
    }, event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", tip.hide);
  canvas.addEventListener("click", event => {
    const pair = pairAt(event);
    if (pair) onSelect(...pair);
  });
  new ResizeObserver(draw).observe(canvas.parentElement);
  document.addEventListener("theme", draw);

  return {
    update(next) {
      matrix = next;
      draw();
    },
    // the pixel at the center of a pair's cell; used by tests
    cellOf: (row, column) => [margin + (matrix.order.indexOf(column) + 0.5) * cell, (matrix.order.indexOf(row) + 0.5) * cell],
  };
}
