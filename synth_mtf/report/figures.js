// Figures: a click enlarges one; the pointer shows the nearest point of a curve.
'use strict';

const NEAR = 40; // pixels

/** Returns the nearest point within reach, as [distance, panel, line, point]. */
function nearestPoint(panels, image, event) {
  const { clientWidth, clientHeight } = image;
  let nearest = [NEAR];
  for (const panel of panels) {
    for (const line of panel.lines) {
      for (const point of line.points) {
        const distance = Math.hypot(
          point[0] * clientWidth - event.offsetX,
          point[1] * clientHeight - event.offsetY,
        );
        if (distance < nearest[0]) nearest = [distance, panel, line, point];
      }
    }
  }
  return nearest;
}

for (const figure of document.querySelectorAll('figure')) {
  const image = figure.querySelector('img');
  const button = figure.querySelector('button');
  const reading = figure.querySelector('output');
  const panels = JSON.parse(figure.dataset.panels);
  button.addEventListener('click', () => {
    const isLarge = figure.classList.toggle('large');
    button.setAttribute('aria-pressed', isLarge);
    figure.scrollIntoView({ block: 'nearest' });
  });
  for (const kind of ['pointermove', 'pointerdown']) {
    image.addEventListener(kind, (event) => {
      const [, panel, line, point] = nearestPoint(panels, image, event);
      if (!point) return;
      const [, , x, y] = point;
      reading.textContent = `${panel.title}: ${line.label}, ${x}: ${y}`;
    });
  }
}
