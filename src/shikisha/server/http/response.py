"""A JSON response that `core.json_codec` writes: for answers that are asked for hundreds of times a second."""

from fastapi.responses import JSONResponse

from shikisha.core.json_codec import encode_json


class QuickResponse(JSONResponse):
    """A JSON response."""

    def render(self, content: object) -> bytes:
        """Return the body."""
        return encode_json(content)
