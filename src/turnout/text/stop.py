"""Finding stop strings in text that arrives in parts."""

from turnout.core.errors import InvalidRequest


class StopScanner:
    """Watches a growing text for stop strings and lets through only what cannot belong to one.

    The first stop string to be complete ends the text, which then reaches up to where that string begins; of two
    complete at the same character the longer counts. The outcome therefore does not depend on how the text is
    cut into parts. Costs a few steps per character and stop string (Knuth, Morris and Pratt 1977).
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        """Raises InvalidRequest for an empty stop string, which would end every text before it begins."""
        if "" in stops:
            raise InvalidRequest("a stop string must not be empty", param="stop")
        self._stops = stops
        self._borders = [_borders(stop) for stop in stops]
        self._matched = [0] * len(stops)
        self._held = ""
        self._hit = False

    def push(self, text: str) -> tuple[str, bool]:
        """Take the next part; returns what may be sent now, and whether a stop string has been found."""
        if self._hit:
            return "", True
        seen = self._held + text
        for end, character in enumerate(text, start=len(self._held) + 1):
            longest = self._advance(character)
            if longest:
                self._held, self._hit = "", True
                return seen[: end - longest], True
        keep = len(seen) - max(self._matched, default=0)
        self._held = seen[keep:]
        return seen[:keep], False

    def flush(self) -> str:
        """End the text; returns what was held back as the possible beginning of a stop string."""
        held, self._held = self._held, ""
        return held

    def _advance(self, character: str) -> int:
        """Feed one character to every stop string; returns the length of the longest now complete, or 0."""
        longest = 0
        for n, stop in enumerate(self._stops):
            matched, borders = self._matched[n], self._borders[n]
            while matched and stop[matched] != character:
                matched = borders[matched - 1]
            self._matched[n] = matched = matched + (stop[matched] == character)
            if matched == len(stop):
                longest = max(longest, matched)
        return longest


def _borders(stop: str) -> list[int]:
    """For each prefix of a string, the length of the longest shorter prefix that it also ends with."""
    borders = [0] * len(stop)
    length = 0
    for n in range(1, len(stop)):
        while length and stop[n] != stop[length]:
            length = borders[length - 1]
        length += stop[n] == stop[length]
        borders[n] = length
    return borders
