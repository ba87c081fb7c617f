// Colours, and canvases to paint with them.
'use strict';

function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name);
}

function rgb(hex) {
  const digits = hex.trim().slice(1);
  return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
}

/** A colour for each share of the largest weight, from -1 to 1. */
function ramp() {
  const stops = (name) => style(name).trim().split(/\s+/).map(rgb);
  const positive = stops('--ramp');
  const negative = stops('--negative-ramp');
  return (share) => {
    const colours = share < 0 ? negative : positive;
    const at = Math.min(Math.abs(share), 1) * (colours.length - 1);
    const low = Math.min(Math.floor(at), colours.length - 2);
    return colours[low].map((c, i) =>
      Math.round(c + (at - low) * (colours[low + 1][i] - c)),
    );
  };
}

function picture(width, height, colourAt) {
  const pixels = new ImageData(width, height);
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      pixels.data.set(colourAt(x, y), at);
      pixels.data[at + 3] = 255;
      at += 4;
    }
  }
  const canvas = document.createElement('canvas');
  canvas.width = width;
  canvas.height = height;
  canvas.getContext('2d').putImageData(pixels, 0, 0);
  return canvas;
}

/** Gives a canvas its size in CSS pixels and returns its context. */
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  return context;
}
