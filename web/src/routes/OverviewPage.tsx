import { Page } from "@/app/Page";
import { EmptyState } from "@/components/EmptyState";

export function OverviewPage() {
  return (
    <Page>
      <EmptyState icon="overview" title="Overview" />
    </Page>
  );
}
