import {
  memo,
  type ReactNode,
  type Ref,
  useCallback,
  useEffect,
  useImperativeHandle,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import type { JobRow } from "@/api/model";
import { cx } from "@/lib/cx";
import type { JobColumn } from "./columns";
import { JobGridRow } from "./JobGridRow";
import {
  type Geometry,
  heightPx,
  isCornered,
  moved,
  type Place,
  placeOf,
  type Range,
  reveal,
  rowTop,
  settled,
  visible,
} from "./scroll";

export const ROW_PX = 32;
export const TALL_ROW_PX = 56;
const HEAD_PX = 32;
const OVERSCAN = 8;
const REST_MS = 150;

export interface JobGridHandle {
  /** Brings a row into view. */
  reveal: (index: number) => void;
  toTop: () => void;
}

interface JobGridProps {
  ref?: Ref<JobGridHandle>;
  count: number;
  /** Nothing is known yet: the places of some rows are shown. */
  loading: boolean;
  /** The row, if it is here already. */
  rowAt: (index: number) => JobRow | undefined;
  columns: readonly JobColumn[];
  /** Two lines per job instead of columns. */
  narrow: boolean;
  /** The row that the keyboard is on. */
  cursor: number | null;
  isSelected: (id: string) => boolean;
  allSelected: boolean;
  initialFirst: number;
  onRange: (range: Range) => void;
  onSelect: (index: number, row: JobRow, range: boolean) => void;
  onSelectAll: () => void;
  onOpen: (row: JobRow) => void;
  link: (row: JobRow, children: ReactNode) => ReactNode;
}

/** Any number of jobs, of which only those in view exist. Drawn anew only when what it is given changes. */
export const JobGrid = memo(function JobGrid(props: JobGridProps) {
  const { ref, count, loading, rowAt, columns, narrow, cursor, initialFirst, onRange } = props;
  const box = useRef<HTMLDivElement>(null);
  const rowPx = narrow ? TALL_ROW_PX : ROW_PX;
  const [viewPx, setViewPx] = useState(0);
  const [place, setPlace] = useState<Place>({ scrollTop: 0, shift: 0 });
  const headPx = narrow ? 0 : HEAD_PX;
  const geometry: Geometry = { count, rowPx, viewPx };
  const latest = useRef({ geometry, place });
  latest.current = { geometry, place };

  /** Scrolls the element there and remembers what it made of it. */
  const goTo = useCallback((next: Place) => {
    const element = box.current;
    if (!element) return;
    element.scrollTop = next.scrollTop;
    const scrollTop = element.scrollTop;
    const place = { scrollTop, shift: next.scrollTop + next.shift - scrollTop };
    latest.current.place = place;
    setPlace(place);
  }, []);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setViewPx(Math.max(0, element.clientHeight - headPx));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [headPx]);

  // Once, when there is something to scroll: where the URL says.
  const begin = useRef(initialFirst);
  useLayoutEffect(() => {
    if (begin.current === 0 || count === 0 || viewPx === 0) return;
    const top = begin.current * rowPx;
    begin.current = 0;
    goTo(placeOf({ count, rowPx, viewPx }, top));
  }, [count, rowPx, viewPx, goTo]);

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    let rest: ReturnType<typeof setTimeout> | undefined;
    const settle = () => goTo(settled(latest.current.geometry, latest.current.place));
    const onScroll = () => {
      const { geometry, place } = latest.current;
      const next = moved(geometry, place, element.scrollTop);
      clearTimeout(rest);
      if (isCornered(geometry, next)) {
        goTo(settled(geometry, next));
        return;
      }
      latest.current.place = next;
      // React is told only when other rows are in view; in between the browser scrolls what is there.
      setPlace((shown) => {
        const before = visible(geometry, shown, OVERSCAN);
        const now = visible(geometry, next, OVERSCAN);
        return before.first === now.first && before.end === now.end && shown.shift === next.shift
          ? shown
          : next;
      });
      if (next.shift !== 0) rest = setTimeout(settle, REST_MS);
    };
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      clearTimeout(rest);
      element.removeEventListener("scroll", onScroll);
    };
  }, [goTo]);

  useImperativeHandle(
    ref,
    () => ({
      reveal: (index) => {
        const { geometry, place } = latest.current;
        goTo(placeOf(geometry, reveal(geometry, place, index)));
      },
      toTop: () => goTo({ scrollTop: 0, shift: 0 }),
    }),
    [goTo],
  );

  const seen = visible(geometry, latest.current.place);
  useEffect(() => {
    if (seen.end > 0) onRange({ first: seen.first, end: seen.end });
  }, [seen.first, seen.end, onRange]);

  const { first, end } = visible(geometry, place, OVERSCAN);
  const places = count === 0 && loading ? Math.ceil(viewPx / rowPx) : Math.max(0, end - first);
  const indexes = Array.from({ length: places }, (_, n) => first + n);
  // Elements are used again for other rows: to make new ones is most of the cost of a jump.
  const slots = Math.ceil(viewPx / rowPx) + 2 * OVERSCAN + 2;
  const tracks = ["36px", ...columns.map(({ width }) => width)].join(" ");
  const minPx = narrow ? 0 : 52 + columns.reduce((sum, { min }) => sum + min + 12, 0);
  return (
    <div
      ref={box}
      role="grid"
      aria-label="Jobs"
      aria-rowcount={count + 1}
      aria-colcount={columns.length + 1}
      aria-multiselectable="true"
      tabIndex={0}
      className="relative min-h-0 flex-1 overflow-auto overscroll-contain [overflow-anchor:none] focus-visible:outline-offset-[-2px]"
    >
      {!narrow && (
        <div
          role="row"
          aria-rowindex={1}
          tabIndex={-1}
          className="sticky top-0 z-10 grid h-8 items-center gap-x-3 border-b border-line bg-panel pr-4 pl-4 text-xs text-muted"
          style={{ gridTemplateColumns: tracks, minWidth: minPx }}
        >
          <div role="columnheader" tabIndex={-1} className="flex">
            <input
              type="checkbox"
              aria-label="Select all jobs in view"
              className="size-3.5 accent-accent"
              checked={props.allSelected}
              onChange={props.onSelectAll}
            />
          </div>
          {columns.map((column) => (
            <div
              key={column.key}
              role="columnheader"
              tabIndex={-1}
              className={cx("clip font-medium", column.numeric && "text-right")}
            >
              {column.title}
            </div>
          ))}
        </div>
      )}
      <div role="presentation" className="relative" style={{ height: heightPx(geometry), minWidth: minPx }}>
        {indexes.map((index) => {
          const row = rowAt(index);
          return (
            <JobGridRow
              key={index % slots}
              index={index}
              row={row}
              top={rowTop(geometry, place, index)}
              height={rowPx}
              tracks={tracks}
              columns={columns}
              narrow={narrow}
              selected={row !== undefined && props.isSelected(row.id)}
              current={index === cursor}
              onSelect={props.onSelect}
              onOpen={props.onOpen}
              link={props.link}
            />
          );
        })}
      </div>
    </div>
  );
});
