// The scatter plot of queries, on a canvas, which stays fast with tens of thousands of points.

const PAD = { left: 58, right: 16, top: 12, bottom: 46 };
const REACH = 14; // pixels; the pointer selects the nearest point within this distance

function makeScatter(canvas, tip, { describe, onChoose, onStep }) {
  let plot = null; // {xs, ys, rows, colors, xTitle, yTitle, diagonal, logX}
  let selected = -1, hovered = -1, toX, toY;

  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function extent(values, rows, log) {
    let low = Infinity, high = -Infinity;
    for (const row of rows) {
      const value = values(row);
      if (!Number.isFinite(value) || (log && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low > high) return [0, 1];
    if (low === high) return log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
    return [low, high];
  }

  function ticks([low, high], log) {
    if (log) {
      const values = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
        for (const factor of [1, 3]) values.push(factor * 10 ** power);
      }
      return values.filter(value => value >= low && value <= high);
    }
    const rough = (high - low) / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find(factor => factor * power >= rough) * power;
    const values = [];
    for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) values.push(value);
    return values;
  }

  const tickText = value => Math.abs(value) >= 1000 ? showCount(Math.round(value)) : String(Number(value.toPrecision(6)));

  function draw() {
    if (!plot) return;
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = `12px ${getComputedStyle(canvas).fontFamily}`;

    const across = extent(plot.xs, plot.rows, plot.logX), up = extent(plot.ys, plot.rows, false);
    if (plot.diagonal) { // the same measure on both axes, so the same scale
      across[0] = up[0] = Math.min(across[0], up[0]);
      across[1] = up[1] = Math.max(across[1], up[1]);
    }
    const transform = plot.logX ? Math.log : value => value;
    const [left, right] = [PAD.left, width - PAD.right], [bottom, top] = [height - PAD.bottom, PAD.top];
    toX = value => left + 6 + (right - left - 12) * (transform(value) - transform(across[0])) / (transform(across[1]) - transform(across[0]));
    toY = value => bottom - 6 - (bottom - top - 12) * (value - up[0]) / (up[1] - up[0]);

    pen.strokeStyle = color("--line");
    pen.fillStyle = color("--soft");
    pen.lineWidth = 1;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const value of ticks(across, plot.logX)) {
      line(pen, toX(value), top, toX(value), bottom);
      pen.fillText(tickText(value), toX(value), bottom + 7);
    }
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of ticks(up, false)) {
      line(pen, left, toY(value), right, toY(value));
      pen.fillText(tickText(value), left - 8, toY(value));
    }
    pen.textAlign = "center";
    pen.textBaseline = "bottom";
    pen.fillStyle = color("--ink");
    pen.fillText(fit(pen, plot.xTitle, right - left), (left + right) / 2, height - 4);
    pen.save();
    pen.translate(13, (top + bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textBaseline = "middle";
    pen.fillText(fit(pen, plot.yTitle, bottom - top), 0, 0);
    pen.restore();
    if (plot.diagonal) {
      pen.strokeStyle = color("--soft");
      pen.setLineDash([4, 4]);
      line(pen, toX(across[0]), toY(up[0]), toX(across[1]), toY(up[1]));
      pen.setLineDash([]);
    }
    drawPoints(pen, ratio);
    if (hovered >= 0) ring(pen, hovered, color("--ink"), 6, 1.5);
    if (selected >= 0 && plot.shown[selected]) {
      pen.strokeStyle = color("--accent");
      pen.globalAlpha = 0.5;
      const [x, y] = [toX(plot.xs(selected)), toY(plot.ys(selected))];
      if (Number.isFinite(x + y)) {
        line(pen, left, y, right, y);
        line(pen, x, top, x, bottom);
      }
      pen.globalAlpha = 1;
      ring(pen, selected, color("--accent"), 8, 3);
    }
  }

  function drawPoints(pen, ratio) {
    const many = plot.rows.length, radius = many > 5000 ? 2.5 : many > 800 ? 3.5 : 4.5;
    const alpha = many > 5000 ? 0.45 : many > 800 ? 0.6 : 0.75;
    const stamps = plot.colors.map(name => { // one drawn point per color: copying it is faster than drawing each point
      const size = Math.ceil(2 * (radius + 1) * ratio), stamp = new OffscreenCanvas(size, size), dot = stamp.getContext("2d");
      dot.fillStyle = color(name);
      dot.globalAlpha = alpha;
      dot.beginPath();
      dot.arc(size / 2, size / 2, radius * ratio, 0, 2 * Math.PI);
      dot.fill();
      return stamp;
    });
    const side = 2 * (radius + 1);
    for (const row of plot.rows) {
      const x = toX(plot.xs(row)), y = toY(plot.ys(row));
      if (Number.isFinite(x + y)) pen.drawImage(stamps[plot.types[row]], x - side / 2, y - side / 2, side, side);
    }
  }

  function ring(pen, row, style, radius, width) {
    const x = toX(plot.xs(row)), y = toY(plot.ys(row));
    if (!Number.isFinite(x + y)) return;
    pen.strokeStyle = style;
    pen.lineWidth = width;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.stroke();
    pen.lineWidth = 1;
  }

  function nearest(x, y) {
    let closest = -1, least = REACH ** 2;
    for (const row of plot.rows) {
      const gap = (toX(plot.xs(row)) - x) ** 2 + (toY(plot.ys(row)) - y) ** 2;
      if (gap < least) [least, closest] = [gap, row];
    }
    return closest;
  }

  function hover(row) {
    if (row === hovered) return;
    hovered = row;
    if (row < 0) tip.hide();
    else {
      const box = canvas.getBoundingClientRect();
      tip.show(describe(row), box.left + toX(plot.xs(row)), box.top + toY(plot.ys(row)));
    }
    requestAnimationFrame(draw);
  }

  canvas.addEventListener("pointermove", event => plot && hover(nearest(event.offsetX, event.offsetY)));
  canvas.addEventListener("pointerleave", () => hover(-1));
  canvas.addEventListener("blur", () => hover(-1));
  canvas.addEventListener("click", event => {
    const row = plot ? nearest(event.offsetX, event.offsetY) : -1;
    if (row >= 0) onChoose(row);
  });
  canvas.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      hover(onStep(hovered >= 0 ? hovered : selected, step));
    } else if (event.key === "Enter" && hovered >= 0) onChoose(hovered);
    else if (event.key === "Escape") hover(-1);
  });
  new ResizeObserver(draw).observe(canvas);
  document.addEventListener("theme", draw);

  return {
    update(next) {
      hovered = -1;
      plot = next;
      draw();
    },
    choose(row) {
      selected = row;
      draw();
    },
    // the pixel of the canvas at which a query's point is drawn; used by tests
    pointOf: row => [toX(plot.xs(row)), toY(plot.ys(row))],
  };
}

function line(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

function fit(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  // cut in the middle, so that names with a common beginning differ at their ends
  const cut = kept => `${text.slice(0, Math.floor(kept / 2))}…${text.slice(text.length - Math.ceil(kept / 2))}`;
  let kept = text.length - 1;
  while (kept > 0 && pen.measureText(cut(kept)).width > width) kept -= 1;
  return kept > 0 ? cut(kept) : "…";
}
