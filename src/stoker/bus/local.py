"""The bus of a coordinator that is alone on its store."""

from stoker.bus.base import Notification, Receive


class NoBus:
    """The bus of a coordinator that is alone on its store: it drops all notifications."""

    connected = True

    def start(self, receive: Receive) -> None:
        pass

    def publish(self, notification: Notification) -> None:
        pass

    async def close(self) -> None:
        pass
