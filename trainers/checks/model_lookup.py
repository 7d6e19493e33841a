"""Looking a model up without its weights: in its folder, in this machine's hub cache, or on the hub, which is asked for facts and small files only.

Nothing is written: a cache that held config.json alone would look like a downloaded model. Where the hub cannot be asked, the answer says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from trainers.checks.model_facts import ModelAnswer, ModelFacts, choose_licence, read_front_matter, read_model_facts
from trainers.checks.model_size import count_parameters_of_config, count_parameters_of_folder
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import FolderPolicy, HubPolicy, Policy, RunPolicy, TinyPolicy
from trainers.policies.checks import find_cached_folder, is_hub_offline, template_in

SECONDS = 4.0  # that the hub may be silent
LARGEST_CARD = 64 << 10  # bytes; the front matter is at the beginning
LARGEST_JSON = 16 << 20  # bytes; some tokenizers' configurations have megabytes
WORKER_WILL = "the worker will download it when the run starts"


def answer_model_lookup(data: bytes) -> Iterator[str]:
    """The answer about the policy in ``data``, part of a spec, as one line of JSON. Raises SpecError."""
    yield json.dumps(look_up_model(parse_policy(data)).as_json(), allow_nan=False)


def parse_policy(text: bytes) -> TinyPolicy | HubPolicy | FolderPolicy | RunPolicy:
    """Raises SpecError."""
    try:
        return TypeAdapter[Any](Policy).validate_json(text)
    except ValidationError as error:
        raise SpecError([Problem("policy", None, f"is no policy: {error.errors()[0]['msg']}", given=False)]) from None


def look_up_model(policy: TinyPolicy | HubPolicy | FolderPolicy | RunPolicy) -> ModelAnswer:
    """What can be said of the policy. The built-in one needs no look-up; a folder that cannot be read is refused elsewhere."""
    if isinstance(policy, TinyPolicy):
        return ModelAnswer()
    if isinstance(policy, HubPolicy):
        place = find_cached_folder(policy)
        return ModelAnswer(read_folder_facts(place, "cache")) if place else ask_hub(policy)
    return ModelAnswer(read_folder_facts(Path(policy.path) if isinstance(policy, FolderPolicy) else policy.path(), "folder"))


def read_folder_facts(folder: Path, found: Literal["folder", "cache"]) -> ModelFacts | None:
    """None where there is no configuration: adapters, or what the check of the folder refuses."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(config, dict):
        return None
    parameters, counted = count_parameters_of_folder(folder), "weights"
    if parameters is None:
        parameters, counted = count_parameters_of_config(config), "configuration"
    has_tokenizer = (folder / "tokenizer_config.json").is_file() or (folder / "chat_template.jinja").is_file()
    has_template = bool(template_in(folder)) if has_tokenizer else None
    return read_model_facts(config, found, parameters, counted, has_template, choose_licence(read_front_matter(read_card(folder))))


def read_card(folder: Path) -> str:
    """The beginning of the folder's README.md, which is the model card; empty without one."""
    try:
        with (folder / "README.md").open("rb") as file:
            return file.read(LARGEST_CARD).decode("utf-8", "replace")
    except OSError:
        return ""


def ask_hub(policy: HubPolicy) -> ModelAnswer:
    """The hub's answer, with HF_TOKEN where it is set. A name it refuses is a problem; a hub that cannot be asked is a warning."""
    from huggingface_hub import errors

    if is_hub_offline():
        return explain_unresolved(policy, "it is not in this machine's cache and HF_HUB_OFFLINE is set", "unset it, or download the model here")
    try:
        return ModelAnswer(fetch_hub_facts(policy))
    except errors.GatedRepoError:
        return refuse_name(policy, "access to this repository has to be asked for", "accept its terms on the hub and set HF_TOKEN")
    except errors.RepositoryNotFoundError as error:
        if error.response.status_code == 404:
            return refuse_name(
                policy, "the hub has no such repository (404)", "correct the id; if it is private, set HF_TOKEN to one that may read it"
            )
        return refuse_name(policy, "the hub shows no such repository: it is private, or does not exist", "correct the id, or set HF_TOKEN")
    except errors.RevisionNotFoundError:
        problem = Problem("policy.revision", policy.revision, f"{policy.name} has no such revision", "use a branch, tag or commit it has")
        return ModelAnswer(problems=[problem])
    except errors.EntryNotFoundError:
        return refuse_name(policy, "the repository has no config.json", "choose one that transformers can load")
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status == 404:
            return refuse_name(policy, "the hub has no such repository (404)", "correct the id")
        if status in (401, 403):
            return refuse_name(policy, f"the hub refuses access ({status})", "set HF_TOKEN to one that may read it")
        return explain_unresolved(policy, f"the hub answered {status}", WORKER_WILL)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return explain_unresolved(policy, f"the hub's answer cannot be read: {str(error)[:120]}", WORKER_WILL)
    # Nobody there, or too slow. HTTPError is httpx's, under whatever name the installed huggingface_hub depends on it.
    except (errors.HTTPError, OSError):  # type: ignore[attr-defined]
        return explain_unresolved(policy, f"no network, or {hub_address()} does not answer", WORKER_WILL)


def fetch_hub_facts(policy: HubPolicy) -> ModelFacts:
    """Raises huggingface_hub's errors, and ValueError for what is no configuration."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.constants import ENDPOINT

    def fetch_file(name: str) -> dict[str, Any]:
        return fetch_hub_json(hf_hub_url(policy.name, name, revision=policy.revision))

    info = fetch_hub_json(f"{ENDPOINT}/api/models/{policy.name}/revision/{quote(policy.revision, safe='')}")
    config = fetch_file("config.json")
    files = {sibling["rfilename"] for sibling in info.get("siblings") or []}
    has_template = "chat_template.jinja" in files
    if not has_template and "tokenizer_config.json" in files:
        has_template = bool(fetch_file("tokenizer_config.json").get("chat_template"))
    parameters, counted = (info.get("safetensors") or {}).get("total"), "the hub"
    if not isinstance(parameters, int) or parameters <= 0:
        parameters, counted = count_parameters_of_config(config), "configuration"
    card = info.get("cardData")
    return read_model_facts(config, "hub", parameters, counted, has_template, choose_licence(card if isinstance(card, dict) else {}))


def fetch_hub_json(url: str) -> dict[str, Any]:
    """An object of the hub's, kept in memory. Not by HfApi, which reads answers of any length and asks the hub other things first."""
    from huggingface_hub import get_session, get_token, hf_raise_for_status

    token = get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    text = b""
    with get_session().stream("GET", url, headers=headers, timeout=SECONDS, follow_redirects=True) as response:
        if response.status_code >= 400:
            response.read()  # the reason is in there
        hf_raise_for_status(response)
        for piece in response.iter_bytes():
            text += piece
            if len(text) > LARGEST_JSON:
                raise ValueError(f"it is longer than {LARGEST_JSON >> 20} MiB")
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def explain_unresolved(policy: HubPolicy, why: str, fix: str) -> ModelAnswer:
    message = f"the config of {policy.name} could not be resolved from here: {why}"
    return ModelAnswer(warnings=[Problem("policy.name", policy.name, message, fix)], unresolved=True)


def refuse_name(policy: HubPolicy, message: str, fix: str) -> ModelAnswer:
    return ModelAnswer(problems=[Problem("policy.name", policy.name, message, fix)])


def hub_address() -> str:
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
