import "./styles/app.css";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/problem";
import { router } from "./app/router";
import { startLive } from "./live/live";

const client = new QueryClient({
  defaultOptions: {
    queries: {
      // The stream says when something changes; without it, pages poll. See live/sync.ts.
      staleTime: 30_000,
      refetchOnWindowFocus: false,
      // What the server refused it will refuse again.
      retry: (failures, error) => !(error instanceof ApiError && error.status < 500) && failures < 2,
    },
  },
});

startLive(client);

// The server was replaced by another version and the page's own parts are gone: take the new ones.
window.addEventListener("vite:preloadError", () => location.reload());

const root = document.getElementById("root");
if (root)
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={client}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </StrictMode>,
  );
