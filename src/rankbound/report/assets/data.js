// Unpacks the data of the page: the queries as columns, and the values of a measure on first use.

const MISSING = -32768; // "no value" among the packed numbers
const element = id => document.getElementById(id);

async function inflate(id) {
  const binary = atob(element(id).textContent.trim());
  const bytes = Uint8Array.from(binary, character => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer();
}

function unpackNumbers(packed, digits) {
  const scale = 10 ** digits;
  return Float64Array.from(packed, whole => whole === MISSING ? NaN : whole / scale);
}

async function readPage() {
  const page = JSON.parse(element("page").textContent);
  const buffer = await inflate("page-queries");
  const [idBytes, count, digits] = new Int32Array(buffer, 0, 3);
  const column = index => new Int32Array(buffer, 12 + 4 * count * index, count);
  const afterColumns = 12 + 16 * count;
  const ids = new TextDecoder().decode(new Uint8Array(buffer, afterColumns + 2 * count, idBytes));
  page.queries = {
    count, ids: JSON.parse(ids), data: column(0), items: column(1), relevant: column(2), type: column(3),
    expected: unpackNumbers(new Int16Array(buffer, afterColumns, count), digits),
  };
  const unpacked = new Map();
  // resolves to a Float64Array of systems x queries
  page.valuesOf = async index => {
    if (!unpacked.has(index)) {
      const packed = new Int16Array(await inflate(`page-values-${index}`));
      unpacked.set(index, unpackNumbers(packed, page.measures[index].digits));
    }
    return unpacked.get(index);
  };
  // resolves to {levels, gaps}: corrected p-values and mean differences, data sets x pairs of systems
  page.pairsOf = async index => {
    const packed = new Int16Array(await inflate(`page-pairs-${index}`)), half = packed.length / 2;
    const [levelDigits, gapDigits] = page.pairDigits[index];
    return { levels: unpackNumbers(packed.subarray(0, half), levelDigits), gaps: unpackNumbers(packed.subarray(half), gapDigits) };
  };
  return page;
}

// ---- numbers --------------------------------------------------------------------------------------------------------

function show(value, digits = 4, sign = false) {
  if (!Number.isFinite(value)) return "–";
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return text;
  return (value < 0 ? "−" : sign ? "+" : "") + text;
}

const showCount = value => value.toLocaleString("en");

// Mean of some rows of a column with a normal interval; quantile is the one of the standard normal distribution. With
// fewer rows than `fewest` there is no interval.
function meanOf(valueAt, rows, quantile = 1.96, fewest = 2) {
  let n = 0, sum = 0, squares = 0;
  for (const row of rows) {
    const value = valueAt(row);
    if (!Number.isFinite(value)) continue;
    n += 1;
    const step = value - sum;
    sum += step / n; // the running mean
    squares += step * (value - sum);
  }
  const half = n >= fewest ? quantile * Math.sqrt(squares / (n - 1) / n) : NaN;
  return { n, mean: n ? sum : NaN, low: sum - half, high: sum + half };
}
