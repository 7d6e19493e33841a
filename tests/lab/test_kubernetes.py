"""deploy/kubernetes/: valid by Kubernetes' own schemas and KEDA's, closed as the cluster demands, and its numbers come from the rows.

Kubernetes' schemas are those of its OpenAPI (the package kubernetes-validate, strict: a field that is not there is a mistake). KEDA's are models
made from its custom resource definitions (cloudcoil-models-keda, of KEDA 2.16): names and types of fields; what stands in ``triggers.metadata`` is
free text there. Nothing here was applied to a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledJob, TriggerAuthentication
from django.conf import settings as lab_settings
from django.db import connection
from kubernetes_validate import ValidationError, validate
from pydantic import ValidationError as ModelError

from lab.supervision.supervisor.worker_starts import list_startable_runs
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status
from lab.training.workers.management.commands.worker import Command
from tests.lab.supervisor.spools import make_run
from tests.lab.test_compose import make_secrets

ROOT = Path(lab_settings.BASE)
FOLDER = ROOT / "deploy/kubernetes"
VERSION = "1.37"
MODELS = {"ScaledJob": ScaledJob, "TriggerAuthentication": TriggerAuthentication}
Manifest = dict[str, Any]


def read_manifests() -> list[Manifest]:
    return [document for path in sorted(FOLDER.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())]


MANIFESTS = read_manifests()
BY_NAME = {(one["kind"], one["metadata"]["name"]): one for one in MANIFESTS}
SETTINGS = BY_NAME["ConfigMap", "lab-settings"]["data"]


def refuse_invalid(manifest: Manifest) -> None:
    """Raises ValidationError or ModelError, and AssertionError where KEDA's model does not know a field or takes another type for it."""
    model = MODELS.get(manifest["kind"])
    if model is None:
        validate(manifest, VERSION, strict=True)
        return
    known = deepcopy(manifest)
    if manifest["kind"] == "ScaledJob":
        job = manifest["spec"]["jobTargetRef"]  # what it makes a Job of
        validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": job}, VERSION, strict=True)
        for container in known["spec"]["jobTargetRef"]["template"]["spec"]["containers"]:
            del container["resources"]  # the model takes "4" for a number and then asks it for a pattern of letters
    assert model.model_validate(known).model_dump(by_alias=True, exclude_unset=True, mode="json") == known


def list_pods() -> Iterator[tuple[str, Manifest, Manifest]]:
    """Name of what makes it, its metadata, its spec."""
    for manifest in MANIFESTS:
        template = manifest.get("spec", {}).get("template") or manifest.get("spec", {}).get("jobTargetRef", {}).get("template")
        if template:
            yield manifest["metadata"]["name"], template["metadata"], template["spec"]


PODS = {name: (about, spec) for name, about, spec in list_pods()}
CONTAINERS = [
    pytest.param(spec, container, id=f"{name}-{container['name']}")
    for name, (_, spec) in PODS.items()
    for container in (*spec.get("initContainers", []), *spec["containers"])
]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_each_follows_the_schema_of_its_kind(manifest: Manifest) -> None:
    refuse_invalid(manifest)
    assert manifest["kind"] == "Namespace" or manifest["metadata"]["namespace"] == "policy-lab"


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("Deployment", "containerPort:", "containerPorts:"),
        ("StatefulSet", "replicas: 1", 'replicas: "one"'),
        ("ScaledJob", "maxReplicaCount:", "maxReplicas:"),
        ("ScaledJob", "pollingInterval: 15", 'pollingInterval: "15"'),
        ("ScaledJob", "restartPolicy:", "restart:"),
    ],
)
def test_the_schemas_would_notice_a_mistake(kind: str, right: str, wrong: str) -> None:
    text = yaml.safe_dump(next(one for one in MANIFESTS if one["kind"] == kind), sort_keys=False)
    assert right in text
    with pytest.raises((ValidationError, ModelError, AssertionError)):
        refuse_invalid(yaml.safe_load(text.replace(right, wrong)))


@pytest.mark.parametrize(("spec", "container"), CONTAINERS)
def test_a_container_has_a_user_of_its_own_a_read_only_disk_and_limits(spec: Manifest, container: Manifest) -> None:
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    closed = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == closed
    assert {"cpu", "memory"} <= set(container["resources"]["limits"])
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes_of(spec)
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    if container["image"].startswith("policy-lab:"):
        assert {"/data", "/tmp"} <= writable
        assert container["envFrom"] == [{"configMapRef": {"name": "lab-settings"}}]
        assert spec["securityContext"]["runAsUser"] == int(re.findall(r"--uid (\d+) lab", (ROOT / "Dockerfile").read_text())[0])
    else:
        assert re.fullmatch(r"[a-z]+@sha256:[0-9a-f]{64}", container["image"])
        assert container["image"] in (ROOT / "docker-compose.yml").read_text()
    if container not in spec.get("initContainers", []) and spec.get("restartPolicy") != "Never" and container["name"] != "analysis":
        assert {"livenessProbe", "readinessProbe"} <= set(container)


def volumes_of(spec: Manifest) -> set[str]:
    own = {volume["name"] for volume in spec["volumes"]}
    return own | ({"data"} if any(container["name"] == "postgres" for container in spec["containers"]) else set())  # of its claim template


def test_secrets_are_files_that_are_made_or_said_to_be_added(tmp_path: Path) -> None:
    made = {path.name for path in make_secrets(tmp_path / "secrets")}
    files = {name: Path(path) for name, path in SETTINGS.items() if name.endswith("_FILE")}
    assert {path.parent for path in files.values()} == {Path("/run/secrets/lab")}
    assert {path.name for path in files.values()} - made == {"aws-access-key-id", "aws-secret-access-key"}
    named = [volume["secret"] for _, spec in PODS.values() for volume in spec["volumes"] if "secret" in volume]
    assert {secret["secretName"] for secret in named} == {"lab-secrets"}
    assert {item["key"] for secret in named for item in secret.get("items", [])} <= made
    assert {"parameter": "password", "name": "lab-secrets", "key": "postgres-password"} in BY_NAME["TriggerAuthentication", "lab-database"]["spec"][
        "secretTargetRef"
    ]
    assert b"\n" not in (tmp_path / "secrets/postgres-password").read_bytes()  # KEDA takes the file as it is
    documented = (ROOT / "docs/architecture.md").read_text()
    for name in SETTINGS:
        assert f"`{name.removesuffix('_FILE')}`" in documented or name.startswith(("AWS_", "HF_HOME", "HOME"))
    assert not [one for one in MANIFESTS if one["kind"] == "Secret"]


def test_names_of_one_file_are_those_of_another() -> None:
    labels = [about["labels"] for about, _ in PODS.values()]
    ports = {port["name"] for _, spec in PODS.values() for container in spec["containers"] for port in container.get("ports", [])}
    for one in MANIFESTS:
        if one["kind"] == "Service":
            assert [found for found in labels if found.items() >= one["spec"]["selector"].items()], one["metadata"]["name"]
            assert {port.get("targetPort", port["name"]) for port in one["spec"]["ports"]} <= ports
        if one["kind"] == "NetworkPolicy":
            assert {port["port"] for rule in one["spec"].get("ingress", []) for port in rule["ports"]} <= ports
        if one["kind"] == "Ingress":
            backend = one["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
            assert backend["port"]["name"] in {port["name"] for port in BY_NAME["Service", backend["name"]]["spec"]["ports"]}
            assert f"https://{one['spec']['rules'][0]['host']}" == SETTINGS["LAB_URL"]
    assert SETTINGS["LAB_URL"].removeprefix("https://") in SETTINGS["LAB_HOSTS"].split(",")


def test_probes_ask_what_survives_an_outage_by_a_name_that_is_answered() -> None:
    web = next(container for container in PODS["lab"][1]["containers"] if container["name"] == "web")
    asked = {kind: web[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {kind: get["path"] for kind, get in asked.items()} == {
        "startupProbe": "/health/live",
        "livenessProbe": "/health/live",
        "readinessProbe": "/health/ready",
    }
    for get in asked.values():
        assert {header["name"]: header["value"] for header in get["httpHeaders"]}["Host"] in SETTINGS["LAB_HOSTS"].split(",")
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert " ".join(web["command"]) in compose["web"]["command"][-1]  # which tests/lab/test_compose.py runs


@pytest.mark.parametrize("name", ["lab-worker-gpu", "lab-worker-cpu", "lab"])
def test_what_trains_has_the_time_to_save_and_options_that_exist(name: str) -> None:
    spec = PODS[name][1]
    assert spec["terminationGracePeriodSeconds"] >= float(SETTINGS["LAB_STOP_GRACE_SECONDS"]) + 30
    words = next(container["command"] for container in spec["containers"] if "worker" in container["command"])
    options = Command().create_parser("manage.py", "worker").parse_args(words[words.index("worker") + 1 :])
    if name == "lab":
        assert (options.queues, options.once) == ("analysis", False)
    else:
        assert (options.once, options.idle_exit) == (True, 300)
        assert f"run.queue = '{options.queues}'" in query_of(name)
    template = BY_NAME.get(("ScaledJob", name))
    if template:
        assert template["spec"]["jobTargetRef"]["backoffLimit"] == 0
        assert spec["restartPolicy"] == "Never"


def query_of(name: str) -> str:
    return str(BY_NAME["ScaledJob", name]["spec"]["triggers"][0]["metadata"]["query"])


def ask(name: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(query_of(name))
        (number,) = cursor.fetchone()
    return int(number)


@pytest.mark.django_db
def test_as_many_workers_are_asked_for_as_runs_train_or_may_start(team: Team) -> None:
    assert (ask("lab-worker-gpu"), ask("lab-worker-cpu")) == (0, 0)
    first = make_run(team)
    make_run(team, parent=first)  # waits for the one before
    make_run(team, status=Status.FINISHED)
    make_run(team, outside=True, status=Status.RUNNING)
    make_run(team, reason="Waiting: team Reasoning already has 1 of 1 concurrent runs.")
    make_run(team, status=Status.RUNNING)
    make_run(team, status=Status.LOST, spec={"resources": {"processes": 2}, "training": {"generation": "transformers"}})
    make_run(team, queue="cpu", spec={"resources": {"processes": 2}})
    make_run(team, spec={"training": {"generation": "server", "generation_gpus": 1}})
    make_run(team, queue="cpu", spec={"training": {"generation": "server", "generation_gpus": 1}})
    assert (ask("lab-worker-gpu"), ask("lab-worker-cpu")) == (2, 1)
    waiting = Run.across_teams.filter(pk__in=[run.pk for run in list_startable_runs("gpu")])
    assert waiting.filter(spec={"recipe": "grpo"}, reason="").count() == 1  # as the lab's own start commands count them
