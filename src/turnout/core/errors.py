"""Every error Turnout raises on purpose, as one tree.

    TurnoutError                       500 internal_error
    ├── InvalidRequest                 400 invalid_request
    │   ├── ContextLengthExceeded      400 context_length_exceeded
    │   └── AdapterConflict            400 adapter_conflict
    ├── Unauthorized                   401 invalid_api_key
    ├── Forbidden                      403 forbidden
    ├── ModelNotFound                  404 model_not_found
    ├── AdapterPathNotFound            404 adapter_path_not_found
    ├── KeyNotFound                    404 key_not_found
    ├── TenantNotFound                 404 tenant_not_found
    ├── AdapterExists                  409 adapter_exists
    ├── TenantExists                   409 tenant_exists
    ├── VersionExists                  409 version_exists
    ├── VersionInUse                   409 version_in_use
    ├── AdapterInUse                   409 adapter_in_use
    ├── AdapterPinned                  409 adapter_pinned
    ├── AdapterNotResident             404 adapter_not_resident
    ├── GateNotMet                     409 gate_not_met
    ├── SignatureRequired              409 signature_required
    ├── SignatureInvalid               400 signature_invalid
    ├── NothingToRollBack              409 nothing_to_roll_back
    ├── UnsupportedMediaType           415 unsupported_media_type
    ├── Overloaded                     429 overloaded
    ├── RateLimited                    429 rate_limit_exceeded
    ├── AdapterError                   400 adapter_invalid
    │   ├── AdapterFileError           400 adapter_file_invalid
    │   ├── AdapterConfigError         400 adapter_config_invalid
    │   ├── AdapterTensorError         400 adapter_tensor_invalid
    │   ├── AdapterUnsupported         400 adapter_unsupported
    │   ├── AdapterBaseMismatch        400 adapter_base_mismatch
    │   └── AdapterTooLarge            400 adapter_too_large
    ├── ArtifactNotFound               404 artifact_not_found
    ├── ArtifactDigestMismatch         400 artifact_digest_mismatch
    ├── ArtifactCorrupt                500 artifact_corrupt
    ├── ArtifactStoreFailure           503 artifact_store_failure
    ├── BaseModelError                 500 base_model_invalid     (only at start)
    ├── SettingsError                  500 settings_invalid       (only at start)
    ├── EngineFailure                  500 engine_failure
    ├── EngineStopped                  503 engine_stopped
    ├── LoadCancelled                  503 load_cancelled
    ├── ServerUnreachable              503 server_unreachable     (only in the client)
    └── UnexpectedAnswer               502 unexpected_answer      (only in the client)

A message says what was wrong, where, and what to do. The HTTP layer turns a status and a code into an answer
in one table; nothing else translates errors.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

RateLimit = Literal["requests", "tokens", "concurrent requests"]


class TurnoutError(Exception):
    """Root of the tree; `code` is stable and meant for programs, `str(error)` for people."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequest(TurnoutError):
    """A request that no server could serve as written; `param` names the field."""

    code = "invalid_request"
    status = 400


class ContextLengthExceeded(InvalidRequest):
    """Prompt and asked-for output do not fit the context; the message has both numbers."""

    code = "context_length_exceeded"


class AdapterConflict(InvalidRequest):
    """The request names two different adapters."""

    code = "adapter_conflict"


class Unauthorized(TurnoutError):
    """No key, or a wrong one.

    `why`, and `key_prefix` of a key that there is or was, are for the audit; the caller is not told.
    """

    code = "invalid_api_key"
    status = 401

    def __init__(self, message: str, *, why: str = "no key", key_prefix: str | None = None) -> None:
        super().__init__(message)
        self.why = why
        self.key_prefix = key_prefix


class Forbidden(TurnoutError):
    """The caller is known but may not do this."""

    code = "forbidden"
    status = 403


class ModelNotFound(TurnoutError):
    """No base, adapter or version answers to this name, for this caller."""

    code = "model_not_found"
    status = 404


class AdapterPathNotFound(TurnoutError):
    """There is no adapter folder at this path."""

    code = "adapter_path_not_found"
    status = 404


class KeyNotFound(TurnoutError):
    """No API key has this prefix, for this caller."""

    code = "key_not_found"
    status = 404


class TenantNotFound(TurnoutError):
    """There is no tenant of this name."""

    code = "tenant_not_found"
    status = 404


class AdapterExists(TurnoutError):
    """The name is taken, by another adapter or by the base model."""

    code = "adapter_exists"
    status = 409


class TenantExists(TurnoutError):
    """The tenant's name is taken."""

    code = "tenant_exists"
    status = 409


class VersionExists(TurnoutError):
    """The semantic version is another version's, or the weights are a version that says something else."""

    code = "version_exists"
    status = 409


class VersionInUse(TurnoutError):
    """An alias points at the version, so it stays."""

    code = "version_in_use"
    status = 409


class AdapterInUse(TurnoutError):
    """Requests run on the adapter's weights or wait for them, so they stay in memory."""

    code = "adapter_in_use"
    status = 409


class AdapterPinned(TurnoutError):
    """The adapter is pinned, so its weights stay in memory."""

    code = "adapter_pinned"
    status = 409


class AdapterNotResident(TurnoutError):
    """The server keeps a fixed set of adapters in memory, and the one asked for is not among them."""

    code = "adapter_not_resident"
    status = 404


class GateNotMet(TurnoutError):
    """The version's metrics do not meet what the promotion requires."""

    code = "gate_not_met"
    status = 409


class SignatureRequired(TurnoutError):
    """The alias is only for signed versions, and this one is not signed."""

    code = "signature_required"
    status = 409


class SignatureInvalid(TurnoutError):
    """The signature is not one of these files by its key."""

    code = "signature_invalid"
    status = 400


class NothingToRollBack(TurnoutError):
    """The alias pointed at nothing before that is still there."""

    code = "nothing_to_roll_back"
    status = 409


class UnsupportedMediaType(TurnoutError):
    """The body is not `application/json`."""

    code = "unsupported_media_type"
    status = 415


class Overloaded(TurnoutError):
    """The waiting queue is full; try again in `retry_after` seconds."""

    code = "overloaded"
    status = 429

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RateLimited(TurnoutError):
    """A limit of the caller's key is reached, which `limit` names.

    Try again in `retry_after` seconds; None where waiting does not help. `headers` are the `x-ratelimit-*` ones.
    """

    code = "rate_limit_exceeded"
    status = 429

    def __init__(self, message: str, *, limit: RateLimit, retry_after: int | None, headers: Mapping[str, str]) -> None:
        super().__init__(message)
        self.limit = limit
        self.retry_after = retry_after
        self.headers = headers


class AdapterError(TurnoutError):
    """An adapter that cannot be served exactly, and so is not served."""

    code = "adapter_invalid"
    status = 400


class AdapterFileError(AdapterError):
    """A file is missing, cut short, a stand-in, or not what its name says."""

    code = "adapter_file_invalid"


class AdapterConfigError(AdapterError):
    """A key of `adapter_config.json` has a value that means nothing."""

    code = "adapter_config_invalid"


class AdapterTensorError(AdapterError):
    """A tensor has no partner, no place in the base, a wrong shape or values that are not finite."""

    code = "adapter_tensor_invalid"


class AdapterUnsupported(AdapterError):
    """The adapter changes the function in a way this version of Turnout does not compute."""

    code = "adapter_unsupported"


class AdapterBaseMismatch(AdapterError):
    """The adapter's dimensions belong to another base model."""

    code = "adapter_base_mismatch"


class AdapterTooLarge(AdapterError):
    """The adapter's rank or bytes exceed what this server is set up for."""

    code = "adapter_too_large"


class ArtifactNotFound(TurnoutError):
    """The artefact store holds no bytes with this digest."""

    code = "artifact_not_found"
    status = 404


class ArtifactDigestMismatch(TurnoutError):
    """Bytes that were sent or fetched are not those that the given digest names."""

    code = "artifact_digest_mismatch"
    status = 400


class ArtifactCorrupt(TurnoutError):
    """Bytes in the artefact store are no longer those that were put there."""

    code = "artifact_corrupt"


class ArtifactStoreFailure(TurnoutError):
    """The artefact store cannot be reached, is full, or refuses."""

    code = "artifact_store_failure"
    status = 503


class BaseModelError(TurnoutError):
    """The base model cannot be loaded or is of a kind that is not supported."""

    code = "base_model_invalid"


class SettingsError(TurnoutError):
    """The server's own settings contradict each other or are unsafe."""

    code = "settings_invalid"


class EngineFailure(TurnoutError):
    """A step of the engine failed; the requests in it are lost, others go on."""

    code = "engine_failure"


class EngineStopped(TurnoutError):
    """The engine is shutting down and takes no more requests."""

    code = "engine_stopped"
    status = 503


class LoadCancelled(TurnoutError):
    """An adapter's load was given up, for nobody waited for it any more."""

    code = "load_cancelled"
    status = 503


class ServerUnreachable(TurnoutError):
    """The client has no connection to the server, or lost it; what was asked may have been done."""

    code = "server_unreachable"
    status = 503


class UnexpectedAnswer(TurnoutError):
    """What answers the client is no Turnout server, or one that says what this client does not know."""

    code = "unexpected_answer"
    status = 502
