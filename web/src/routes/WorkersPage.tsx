import { Page } from "@/app/Page";
import { EmptyState } from "@/components/EmptyState";

export function WorkersPage() {
  return (
    <Page>
      <EmptyState icon="workers" title="Workers" />
    </Page>
  );
}
