/**
 * Scrolling over more rows than an element can be high. Browsers stop at some millions of pixels, and a million rows are
 * more; so the scroll bar spans at most `MAX_PX` and stands for the whole list. Small movements (wheel, keys, touch) move
 * the rows pixel by pixel; large ones (dragging the bar) go to the same share of the list. In between, `shift` is how
 * far the rows are from where the bar says they are; it is mended whenever the hand rests.
 */

export const MAX_PX = 8_000_000;

export interface Geometry {
  count: number;
  rowPx: number;
  /** Height of what can be seen. */
  viewPx: number;
}

export interface Place {
  /** Where the element is scrolled to. */
  scrollTop: number;
  /** `scrollTop + shift` is the pixel of the whole list at the upper edge. */
  shift: number;
}

const wholePx = ({ count, rowPx }: Geometry) => count * rowPx;

/** How high the element that scrolls is. */
export const heightPx = (geometry: Geometry): number => Math.min(wholePx(geometry), MAX_PX);

const lastTop = (geometry: Geometry) => Math.max(0, wholePx(geometry) - geometry.viewPx);
const lastScroll = (geometry: Geometry) => Math.max(0, heightPx(geometry) - geometry.viewPx);
const ratio = (geometry: Geometry) => {
  const scroll = lastScroll(geometry);
  return scroll === 0 ? 1 : lastTop(geometry) / scroll;
};

const clamp = (value: number, high: number) => Math.min(Math.max(0, value), high);

/** The place at which the list's pixel `top` is at the upper edge. */
export function placeOf(geometry: Geometry, top: number): Place {
  const clamped = clamp(top, lastTop(geometry));
  const scrollTop = clamped / ratio(geometry);
  return { scrollTop, shift: clamped - scrollTop };
}

/** The place after the element was scrolled to `scrollTop`. */
export function moved(geometry: Geometry, before: Place, scrollTop: number): Place {
  if (wholePx(geometry) <= MAX_PX) return { scrollTop, shift: 0 };
  const small = Math.abs(scrollTop - before.scrollTop) <= geometry.viewPx * 2;
  if (!small) return { scrollTop, shift: scrollTop * ratio(geometry) - scrollTop };
  const top = clamp(scrollTop + before.shift, lastTop(geometry));
  return { scrollTop, shift: top - scrollTop };
}

/** Where the bar belongs: the same rows, at their share of the list. */
export function settled(geometry: Geometry, place: Place): Place {
  return placeOf(geometry, place.scrollTop + place.shift);
}

/** Whether the bar is about to hit an end that the list has not reached. */
export function isCornered(geometry: Geometry, place: Place): boolean {
  const room = geometry.viewPx / 2;
  const { scrollTop } = settled(geometry, place);
  const off = Math.abs(scrollTop - place.scrollTop) > geometry.rowPx;
  return off && (place.scrollTop < room || place.scrollTop > lastScroll(geometry) - room);
}

export interface Range {
  first: number;
  /** Exclusive. */
  end: number;
}

export function visible(geometry: Geometry, place: Place, overscan = 0): Range {
  const top = place.scrollTop + place.shift;
  const first = Math.floor(top / geometry.rowPx);
  const end = Math.ceil((top + geometry.viewPx) / geometry.rowPx);
  return { first: clamp(first - overscan, geometry.count), end: clamp(end + overscan, geometry.count) };
}

/** Where row `index` is drawn in the element that scrolls. */
export const rowTop = (geometry: Geometry, place: Place, index: number): number =>
  index * geometry.rowPx - place.shift;

/** The pixel of the list to go to so that row `index` can be seen; the present one if it can. */
export function reveal(geometry: Geometry, place: Place, index: number): number {
  const top = place.scrollTop + place.shift;
  const row = index * geometry.rowPx;
  if (row < top) return row;
  if (row + geometry.rowPx > top + geometry.viewPx) return row + geometry.rowPx - geometry.viewPx;
  return top;
}
