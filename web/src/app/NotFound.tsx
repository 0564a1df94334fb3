import { Link } from "@tanstack/react-router";
import { EmptyState } from "@/components/EmptyState";

export function NotFound() {
  return (
    <EmptyState icon="search" title="There is no such page">
      Perhaps the{" "}
      <Link to="/" className="text-accent underline">
        overview
      </Link>{" "}
      helps, or <kbd>Ctrl</kbd> <kbd>K</kbd>.
    </EmptyState>
  );
}
