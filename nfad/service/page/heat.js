// Z-score maps in the browser: the colours and outlines of nfad/pictures.py, on levels of 8 bits.

import { send } from "./api.js";

// Every 16th colour of matplotlib's inferno (CC0).
const INFERNO = [
  "000004 0b0724 210c4a 3d0965 57106e 71196e 8a226a a32c61 bc3754",
  "d24644 e45a31 f1731d f98e09 fcac11 f9cb35 f2ea69 fcffa4",
]
  .flatMap(line => line.split(" "))
  .map(colour => [0, 2, 4].map(at => Number.parseInt(colour.slice(at, at + 2), 16)));
const OPACITY = 0.75; // even the strongest colour lets the part's texture through

const COLOURS = Uint8ClampedArray.from(
  Array.from({ length: 256 }, (_, level) => {
    const share = level / 255;
    const place = share * (INFERNO.length - 1);
    const below = Math.min(Math.floor(place), INFERNO.length - 2);
    const rgb = INFERNO[below].map((value, at) => value + (place - below) * (INFERNO[below + 1][at] - value));
    return [...rgb, 255 * OPACITY * share ** 2 * (3 - 2 * share)];
  }).flat(),
);

// The grey levels of a map as floats: z = level / 255 × scale.
export async function levels(address, signal) {
  const response = await send(`${address}?look=levels`, { signal });
  const bitmap = await createImageBitmap(await response.blob(), { colorSpaceConversion: "none" });
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const { data, width, height } = context.getImageData(0, 0, bitmap.width, bitmap.height);
  return { width, height, values: Float32Array.from({ length: width * height }, (_, at) => data[4 * at]) };
}

// Between two maps of one size: 0 is the first, 1 the second.
export function between(first, second, share) {
  const values = first.values.map((value, at) => value + share * (second.values[at] - value));
  return { ...first, values };
}

export function paint(canvas, map) {
  canvas.width = map.width;
  canvas.height = map.height;
  const image = new ImageData(map.width, map.height);
  map.values.forEach((value, at) => {
    const level = 4 * Math.round(value);
    image.data.set(COLOURS.subarray(level, level + 4), 4 * at);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// Where a contour enters and leaves a cell (0 top, 1 right, 2 bottom, 3 left), by which of its corners are above.
const CROSSINGS = [
  [],
  [[3, 0]],
  [[0, 1]],
  [[3, 1]],
  [[1, 2]],
  [
    [3, 0],
    [1, 2],
  ],
  [[0, 2]],
  [[3, 2]],
  [[2, 3]],
  [[2, 0]],
  [
    [0, 1],
    [2, 3],
  ],
  [[2, 1]],
  [[1, 3]],
  [[1, 0]],
  [[0, 3]],
  [],
];

// Marching squares: an SVG path around the regions above a level, in pixels of the map; "" where there is none.
export function outline({ width, height, values }, level) {
  const pieces = [];
  const at = (from, to) => (level - from) / (to - from);
  for (let row = 0; row + 1 < height; row++) {
    for (let column = 0; column + 1 < width; column++) {
      const here = row * width + column;
      const [a, b, c, d] = [values[here], values[here + 1], values[here + width + 1], values[here + width]];
      const kind = (a > level) + 2 * (b > level) + 4 * (c > level) + 8 * (d > level);
      for (const ends of CROSSINGS[kind]) {
        const [from, to] = ends.map(side => {
          const [x, y] = [
            [at(a, b), 0],
            [1, at(b, c)],
            [at(d, c), 1],
            [0, at(a, d)],
          ][side];
          return `${(column + x + 0.5).toFixed(2)} ${(row + y + 0.5).toFixed(2)}`;
        });
        pieces.push(`M${from}L${to}`);
      }
    }
  }
  return pieces.join("");
}

// The colour scale as it looks over mid-grey, because nowhere is it seen without something below.
export function paintScale(canvas) {
  paint(canvas, { width: 256, height: 1, values: Float32Array.from({ length: 256 }, (_, level) => level) });
}
