"""What a coordinator offers to its callers, one object for each subject. The API calls these objects directly."""

from stoker.clock import Clock
from stoker.coordinator.bulk import Bulks
from stoker.coordinator.dead_letters import DeadLetterService
from stoker.coordinator.events import Events
from stoker.coordinator.http_workers import HttpWorkers
from stoker.coordinator.job_output.service import OutputService
from stoker.coordinator.jobs import JobService
from stoker.coordinator.known_types import KnownTypes
from stoker.coordinator.queues import QueueService
from stoker.coordinator.readiness import Readiness
from stoker.coordinator.run_workers import RunWorkers
from stoker.coordinator.schedules import Schedules
from stoker.coordinator.stats import StatsService
from stoker.coordinator.waits import Waits
from stoker.coordinator.workers import WorkerService
from stoker.settings import Settings


class Services:
    """Declares the services that the API uses. A coordinator sets all of them, a test only those that it needs."""

    settings: Settings
    clock: Clock
    jobs: JobService
    types: KnownTypes
    waits: Waits
    output: OutputService
    events: Events
    dead_letters: DeadLetterService
    bulks: Bulks
    schedules: Schedules
    workers: WorkerService
    http_workers: HttpWorkers
    run_workers: RunWorkers
    queues: QueueService
    stats: StatsService
    readiness: Readiness
