import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type ReactNode, useCallback, useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { stopBulk } from "@/api/endpoints";
import { type Bulk, canCancel, canRetry, type JobRow, type JobsFilter, STATUSES } from "@/api/model";
import { refusals } from "@/api/problem";
import { bulkQuery, queuesQuery, statsQuery, typesQuery, workersQuery } from "@/api/queries";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { BulkProgress } from "@/components/jobs/BulkProgress";
import { ColumnChooser } from "@/components/jobs/ColumnChooser";
import { columnNames, columnsOf, WorkerNames } from "@/components/jobs/columns";
import { ExportMenu } from "@/components/jobs/ExportMenu";
import { JobGrid, type JobGridHandle } from "@/components/jobs/JobGrid";
import { SearchBox, type SearchBoxHandle } from "@/components/jobs/SearchBox";
import { SelectionBar } from "@/components/jobs/SelectionBar";
import { StatusTabs } from "@/components/jobs/StatusTabs";
import type { Range } from "@/components/jobs/scroll";
import { extend, isSelected, NONE, type Selection, selectAll, toggle } from "@/components/jobs/selection";
import { toast } from "@/components/Toast";
import { useShortcuts } from "@/keyboard/shortcuts";
import { count, plural } from "@/lib/format";
import { useMedia } from "@/lib/media";
import { useAwaySince, usePolling } from "@/live/live";
import { statusesIn, withKey } from "@/search/language";
import { type Action, EXPORT_MOST, useJobActions } from "./jobs/useJobActions";
import { useJobWindow } from "./jobs/useJobWindow";

const SEARCH_MS = 250;
const PLACE_MS = 400;

const link = (row: JobRow, children: ReactNode) => (
  <Link to="/jobs/$id" params={{ id: row.id }} preload={false} className="hover:underline">
    {children}
  </Link>
);

/** What a question is about, as it was when it was asked: the list may change while the dialog is open. */
interface Question {
  action: Action;
  /** Everything that matches this, or these rows. */
  all: JobsFilter | null;
  rows: readonly JobRow[];
  shown: string;
}

export function JobsPage() {
  const search = useSearch({ from: "/jobs" });
  const navigate = useNavigate({ from: "/jobs" });
  const narrow = useMedia("(max-width: 640px)");
  const [text, setText] = useSearchText(search.q ?? "", (q) =>
    navigate({ search: (before) => ({ ...before, q: q || undefined, at: undefined }), replace: true }),
  );
  const filter = useMemo((): JobsFilter => (search.q ? { q: search.q } : {}), [search.q]);
  const statuses = useMemo(() => statusesIn(search.q ?? ""), [search.q]);
  const columns = useMemo(() => columnsOf(search.cols, statuses), [search.cols, statuses]);
  const jobs = useJobWindow(filter);
  const mistakes = refusals(jobs.error, "q");
  // "All matching" means something only for a search that the server has answered, and that is the one in the box.
  const away = useAwaySince() !== null;
  const answered = text === (search.q ?? "") && !jobs.loading && !jobs.error && !away;
  const actions = useJobActions();
  const [selection, setSelection] = useState<Selection>(NONE);
  const [cursor, setCursor] = useState<number | null>(null);
  const [asking, setAsking] = useState<Question | null>(null);
  const [bulkId, setBulkId] = useState<string | null>(null);
  const [begin] = useState(search.at ?? 0);
  const grid = useRef<JobGridHandle>(null);
  const box = useRef<SearchBoxHandle>(null);

  // Another list: what was chosen in the one before is not meant.
  const listed = useRef(search.q);
  useEffect(() => {
    if (listed.current === search.q) return;
    listed.current = search.q;
    setSelection(NONE);
    setCursor(null);
    grid.current?.toTop();
  }, [search.q]);

  const open = useCallback(
    (row: JobRow) => void navigate({ to: "/jobs/$id", params: { id: row.id } }),
    [navigate],
  );
  const { rowsBetween } = jobs;
  const onSelect = useCallback(
    (index: number, row: JobRow, range: boolean) => {
      setCursor(index);
      const { anchor } = selectionRef.current;
      if (!range || anchor === null) {
        setSelection((before) => toggle(before, row, index));
        return;
      }
      rowsBetween(anchor, index).then(
        (rows) => setSelection((before) => extend(before, rows)),
        (error: unknown) => toast.error(error),
      );
    },
    [rowsBetween],
  );
  const selectionRef = useRef(selection);
  selectionRef.current = selection;

  const rememberPlace = useMemo(
    () =>
      debounce((at: number) => {
        void navigate({
          search: (before) => ({ ...before, at: at || undefined }),
          replace: true,
          resetScroll: false,
        });
      }, PLACE_MS),
    [navigate],
  );
  useEffect(() => rememberPlace.cancel, [rememberPlace]);
  const seen = useRef<Range>({ first: 0, end: 0 });
  const { onRange: wantRange } = jobs;
  const onRange = useCallback(
    (range: Range) => {
      seen.current = range;
      wantRange(range);
      rememberPlace(range.first);
    },
    [wantRange, rememberPlace],
  );

  const shown = `${count(jobs.total)}${jobs.totalCapped ? "+" : ""}`;
  const move = (step: number) => {
    if (jobs.count === 0) return;
    const next = cursor === null ? seen.current.first : Math.min(jobs.count - 1, Math.max(0, cursor + step));
    setCursor(next);
    grid.current?.reveal(next);
  };
  const current = cursor === null ? undefined : jobs.rowAt(cursor);
  /** The selection, or the row that the keyboard is on. */
  const chosen = selection.rows.size ? [...selection.rows.values()] : current ? [current] : [];
  const request = (action: Action) => {
    const able = action === "cancel" ? canCancel : canRetry;
    if (selection.all && !answered) return;
    if (!selection.all && !chosen.some((row) => able(row.status))) {
      if (chosen.length)
        toast.error(
          new Error(
            action === "cancel"
              ? "Nothing to cancel: the job has ended."
              : "Only failed and cancelled jobs are retried.",
          ),
        );
      return;
    }
    const all = selection.all ? filter : null;
    if (all || chosen.length > 1 || action === "cancel") setAsking({ action, all, rows: chosen, shown });
    else void actions.change(action, chosen);
  };
  const confirm = async () => {
    setAsking(null);
    if (!asking) return;
    if (asking.all) {
      const bulk = await actions.changeAll(asking.action, asking.all);
      if (bulk) setBulkId(bulk.id);
    } else await actions.change(asking.action, asking.rows);
    setSelection(NONE);
  };
  // New rows may come every second and all of them differ: drawn in slices, keys and wheel stay ahead of them.
  const rowAt = useDeferredValue(jobs.rowAt);
  const rowAtRef = useRef(jobs.rowAt);
  rowAtRef.current = jobs.rowAt;
  const selectInView = useCallback(() => {
    const { first, end } = seen.current;
    const rows = Array.from({ length: end - first }, (_, n) => rowAtRef.current(first + n));
    setSelection((before) =>
      before.all || before.rows.size
        ? NONE
        : extend(
            before,
            rows.filter((row) => row !== undefined),
          ),
    );
  }, []);
  const isChosen = useCallback((id: string) => isSelected(selection, id), [selection]);

  useShortcuts("Jobs", [
    { keys: "/", text: "Search", run: () => box.current?.focus() },
    { keys: "j", text: "Next job", run: () => move(1) },
    { keys: "k", text: "Previous job", run: () => move(-1) },
    {
      keys: "x",
      text: "Select",
      run: () => current && cursor !== null && onSelect(cursor, current, false),
    },
    {
      keys: "shift+x",
      text: "Select up to here",
      run: () => current && cursor !== null && onSelect(cursor, current, true),
    },
    {
      keys: "mod+a",
      text: "Select all matching",
      run: () => answered && jobs.count > 0 && setSelection(selectAll),
    },
    { keys: "enter", text: "Open", run: () => current && open(current) },
    { keys: "r", text: "Retry", run: () => request("retry") },
    { keys: "c", text: "Cancel", run: () => request("cancel") },
    { keys: "escape", text: "Clear the selection", run: () => setSelection(NONE) },
    {
      keys: "g g",
      text: "To the top",
      run: () => {
        setCursor(0);
        grid.current?.toTop();
      },
    },
  ]);

  const stats = useQuery({ ...statsQuery(), refetchInterval: usePolling() });
  const workerNames = useWorkerNames();
  const completions = useKnown();
  // How many there are is known once the server has said so, and not known any more when it is away.
  const known = !away && (jobs.count > 0 || !jobs.error);
  const picked = selection.all || selection.rows.size > 0;
  return (
    <div className="flex h-full flex-col bg-panel">
      <div className="flex flex-wrap items-start gap-2 border-b border-line px-4 py-2.5">
        <SearchBox ref={box} value={text} known={completions} mistakes={mistakes} onChange={setText} />
        <ColumnChooser
          columns={columns}
          onChange={(names) =>
            void navigate({
              search: (before) => ({ ...before, cols: columnNames(names, statuses) }),
              replace: true,
            })
          }
        />
        <ExportMenu
          what={
            selection.rows.size && !selection.all
              ? plural(selection.rows.size, "job")
              : jobs.total > EXPORT_MOST
                ? `The newest ${count(EXPORT_MOST)} jobs`
                : `All ${shown} jobs`
          }
          busy={actions.busy}
          disabled={mistakes.length > 0}
          onExport={(format) =>
            void (selection.rows.size && !selection.all
              ? actions.exportRows([...selection.rows.values()], format)
              : actions.exportAll(filter, format))
          }
        />
      </div>
      <div className="flex items-center gap-3 border-b border-line px-4">
        <StatusTabs
          counts={away ? null : (stats.data?.counts ?? null)}
          chosen={statuses}
          onChange={(status) => setText(withKey(text, "status", status), true)}
        />
        <span className="ml-auto shrink-0 text-xs text-muted" aria-live="polite">
          {jobs.loading && jobs.count === 0
            ? "…"
            : known
              ? `${shown} ${jobs.total === 1 ? "job" : "jobs"}`
              : "– jobs"}
        </span>
      </div>
      {bulkId !== null && <BulkStatus id={bulkId} onClose={() => setBulkId(null)} />}
      {picked && (
        <SelectionBar
          selected={selection.rows.size}
          all={selection.all}
          total={jobs.total}
          totalCapped={jobs.totalCapped}
          canCancel={selection.all ? answered : chosen.some((row) => canCancel(row.status))}
          canRetry={selection.all ? answered : chosen.some((row) => canRetry(row.status))}
          canSelectAll={answered}
          busy={actions.busy}
          onCancel={() => request("cancel")}
          onRetry={() => request("retry")}
          onAll={() => setSelection(selectAll)}
          onClear={() => setSelection(NONE)}
        />
      )}
      {mistakes.length > 0 ? (
        <NotUnderstood mistakes={mistakes} onClear={() => setText("", true)} />
      ) : jobs.error && jobs.count === 0 ? (
        <div className="p-4">
          <ErrorNote error={jobs.error} onRetry={jobs.refresh} />
        </div>
      ) : jobs.count === 0 && !jobs.loading ? (
        <NoJobs searching={Boolean(search.q)} onClear={() => setText("", true)} />
      ) : (
        <div className="relative flex min-h-0 flex-1 flex-col">
          {jobs.newer && (
            <Button
              size="sm"
              className="absolute top-10 left-1/2 z-20 -translate-x-1/2 rounded-full shadow-high"
              onClick={() => {
                jobs.refresh();
                grid.current?.toTop();
              }}
            >
              ↑ Newer jobs
            </Button>
          )}
          <WorkerNames value={workerNames}>
            <JobGrid
              ref={grid}
              count={jobs.count}
              loading={jobs.loading}
              rowAt={rowAt}
              columns={columns}
              narrow={narrow}
              cursor={cursor}
              isSelected={isChosen}
              allSelected={picked}
              initialFirst={begin}
              onRange={onRange}
              onSelect={onSelect}
              onSelectAll={selectInView}
              onOpen={open}
              link={link}
            />
          </WorkerNames>
        </div>
      )}
      {asking && (
        <ConfirmDialog
          title={asking.action === "cancel" ? "Cancel jobs?" : "Retry jobs?"}
          confirm={`${asking.action === "cancel" ? "Cancel" : "Retry"} ${asking.all ? `all ${asking.shown}` : plural(asking.rows.length, "job")}`}
          danger={asking.action === "cancel"}
          busy={actions.busy}
          onConfirm={() => void confirm()}
          onClose={() => setAsking(null)}
        >
          <p className="wrap-any">
            {about(asking)}{" "}
            {asking.action === "cancel"
              ? "Jobs that wait will never start; running ones are told to stop."
              : "They run again under the same id, with fresh attempts."}
          </p>
        </ConfirmDialog>
      )}
    </div>
  );
}

function about({ all, rows: [first, ...more] }: Question): string {
  if (all)
    return `The server goes through all jobs ${all.q ? `that match “${all.q}”` : "there are"} and were created before now.`;
  return more.length || !first
    ? `${plural(more.length + 1, "job")} selected.`
    : `${first.type} ${first.name ?? first.id}`;
}

/** What is typed, and a little later what is searched for; follows the URL when that changes by itself. */
function useSearchText(
  q: string,
  search: (q: string) => unknown,
): [string, (text: string, now?: boolean) => void] {
  const [text, setText] = useState(q);
  const asked = useRef(q);
  const searchRef = useRef(search);
  searchRef.current = search;
  const later = useMemo(
    () =>
      debounce((next: string) => {
        asked.current = next;
        searchRef.current(next);
      }, SEARCH_MS),
    [],
  );
  useEffect(() => later.cancel, [later]);
  useEffect(() => {
    if (q === asked.current) return;
    asked.current = q;
    setText(q);
  }, [q]);
  const change = useCallback(
    (next: string, now = false) => {
      setText(next);
      if (now) {
        later.cancel();
        asked.current = next;
        searchRef.current(next);
      } else later(next);
    },
    [later],
  );
  return [text, change];
}

function debounce<A extends unknown[]>(run: (...args: A) => void, ms: number) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const call = (...args: A) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...args), ms);
  };
  call.cancel = () => clearTimeout(timer);
  return call;
}

function useKnown() {
  const types = useQuery({ ...typesQuery(), retry: false }).data;
  const queues = useQuery(queuesQuery()).data;
  const workers = useQuery(workersQuery()).data;
  return useMemo(
    () => ({
      types: types?.map(({ type }) => type) ?? [],
      queues: queues?.map(({ name }) => name) ?? [],
      workers: [...new Set(workers?.map(({ name }) => name) ?? [])],
    }),
    [types, queues, workers],
  );
}

/** The same map as long as nobody joined: workers themselves change with every heartbeat. */
function useWorkerNames(): ReadonlyMap<string, string> {
  const workers = useQuery(workersQuery()).data;
  const text = JSON.stringify(workers?.map(({ id, name }) => [id, name]) ?? []);
  return useMemo(() => new Map(JSON.parse(text) as [string, string][]), [text]);
}

function BulkStatus({ id, onClose }: { id: string; onClose: () => void }) {
  const polling = usePolling(1000);
  const query = useQuery({ ...bulkQuery(id), refetchInterval: polling });
  const stop = () =>
    stopBulk(id).then(
      () => void query.refetch(),
      (error: unknown) => toast.error(error),
    );
  const bulk: Bulk | undefined = query.data;
  return bulk ? <BulkProgress bulk={bulk} onStop={() => void stop()} onClose={onClose} /> : null;
}

function NotUnderstood({ mistakes, onClear }: { mistakes: readonly string[]; onClear: () => void }) {
  return (
    <EmptyState
      icon="search"
      title="The search is not understood"
      action={<Button onClick={onClear}>Clear the search</Button>}
    >
      <span className="wrap-any">{mistakes.join(" ")} Nothing is listed until it is.</span>
    </EmptyState>
  );
}

function NoJobs({ searching, onClear }: { searching: boolean; onClear: () => void }) {
  if (searching)
    return (
      <EmptyState
        icon="search"
        title="No job matches"
        action={<Button onClick={onClear}>Clear the search</Button>}
      >
        Words without a key are looked for at the beginning of ids, and in names, types and errors. Keys are
        status, type, queue, priority, worker, age, name and fingerprint; statuses are {STATUSES.join(", ")}.
      </EmptyState>
    );
  return (
    <EmptyState icon="jobs" title="No jobs yet" command={`stoker submit echo '{"hello": "world"}'`}>
      They appear here as they are submitted, from a shell, over REST, from Python or{" "}
      <Link to="/submit" className="text-accent underline">
        with the form
      </Link>
      .
    </EmptyState>
  );
}
