"""OrthAlign: keeps the next objective's gradients out of the directions that the previous one used (arXiv 2509.24610).

With Delta W = U S V^T the update that objective 1 made to a weight (d_out x d_in), its strong left singular directions U_r are protected:

    P = I - U_r U_r^T,   g <- P g

for the gradient of the weight, or of lora_B (d_out x r) with adapters. The next objective trains with its own loss, here DPO's. All singular
directions except the last ``null_ratio`` of them are protected, and at least one stays free.

With null_ratio 1 nothing is protected and this is the base. Several earlier objectives are joined into one orthonormal basis.

Limitation: Adam rescales coordinates, so a projected gradient does not give a projected update. With ``exact``, each step also projects the
accumulated updates so far (the paper's code does not); the most recent update alone then stays as Adam made it. ``earlier`` is the final policy of an
earlier run, or its adapters; ``start`` is the policy that run started from (empty: the one this run starts from; adapters know their own).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.policies import loading as policies

if TYPE_CHECKING:
    from trainers.methods.context import RunContext

SHOWN = 10  # points of the drawn spectrum


def protected_basis(update: Tensor, null_ratio: float) -> Tensor:
    """(d_out, d_in) -> (d_out, r) orthonormal: the strong left singular directions, without those of zero energy. At least one direction stays free,
    so a matrix with a single singular value is not protected at all.
    """
    left, values, _ = torch.linalg.svd(update.float(), full_matrices=False)
    count = len(values) - max(1, int(null_ratio * len(values)))
    alive = int((values > values[:1] * max(update.shape) * torch.finfo(values.dtype).eps).sum()) if len(values) else 0
    return left[:, : min(count, alive)]


def join_bases(bases: list[Tensor]) -> Tensor:
    """(d_out, r_k) each -> (d_out, r): an orthonormal basis of their joint span."""
    if len(bases) == 1:
        return bases[0]
    left, values, _ = torch.linalg.svd(torch.cat(bases, 1), full_matrices=False)
    return left[:, values > 1e-4]


def project_gradient(gradient: Tensor, basis: Tensor) -> Tensor:
    """(d_out, n), (d_out, r) -> (d_out, n): the part outside the basis."""
    return gradient - basis @ (basis.T @ gradient)


def weight_of(name: str) -> str | None:
    """The weight whose output side a trained parameter changes: itself, or the one its lora_B is added to. None for a lora_A."""
    if ".lora_A." in name:
        return None
    return name.removeprefix("base_model.model.").replace(".lora_B.default.weight", ".weight").replace(".base_layer.", ".")


class Config(Strict):
    earlier: str = param("", "Final policies of earlier objectives: folders of policies or adapters, separated by commas.", title="Earlier policies")
    start: str = param("", "Policy that those runs started from; empty: the one this run starts from.", title="Starting policy of earlier runs")
    null_ratio: float = param(
        0.8, "Share of singular directions that stay free (the weakest ones); 1 protects nothing.", title="Null ratio", ge=0, le=1
    )
    targets: str = param(
        "", "Use only weights whose name contains one of these parts, for example q_proj,v_proj; empty: all matrices.", advanced=True
    )
    exact: bool = param(
        False, "Also project the accumulated weight update, because Adam's updates leave the projected subspace.", title="Exact projection"
    )


class OrthAlign(Method):
    card = Card(
        name="orthalign",
        title="Orthogonal alignment of objectives",
        arxiv="2509.24610",
        system="OrthAlign",
        base="dpo",
        provenance="code",
        source="233liang/OrthAlign: project.py, accuracy.py, scripts/dpo.py",
        fit="core",
        idea="Find the directions in which an earlier objective changed each weight, and project the next objective's gradients out of them.",
        formula=(
            r"\Delta W = U S V^\top",
            r"P = I - U_r U_r^\top",
            r"g \leftarrow P g",
        ),
        departures=(
            (
                "All directions except the protected ones stay free; the authors' code keeps columns of the economy SVD, which are "
                "fewer in tall matrices."
            ),
            "Directions of zero energy are never protected.",
            "The search for the null ratio and the norm clipping of the new update are not implemented.",
            "Projecting the weights too is a setting; the authors' code projects only gradients.",
        ),
        claim=("orthalign/leak", "lower"),
    )
    Config = Config
    trains = frozenset({"dpo", "grpo"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.bases: dict[str, Tensor] = {}  # weight -> (d_out, r)
        self.begun: dict[str, Tensor] = {}  # weight -> what it was when this run began

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        folders = [part.strip() for part in self.config.earlier.split(",") if part.strip()]
        if not folders:
            raise self.refusal("there is no earlier objective to protect", "give the folder of the policy that an earlier run ended with")
        found: dict[str, list[Tensor]] = {}
        for folder in folders:
            for name, update in self.updates(Path(folder)).items():
                found.setdefault(name, []).append(protected_basis(update, self.config.null_ratio))
                self.spectrum(update)
        self.bases = {name: join_bases(bases).to(run.device) for name, bases in found.items()}
        own = dict(run.model.named_parameters())
        if wrong := [name for name, basis in self.bases.items() if name not in own or len(own[name]) != len(basis)]:
            raise self.refusal(f"the earlier policy has another architecture: {wrong[0]}", "give a policy of the same shape as this run's")
        if not self.bases:
            raise self.refusal("the earlier policy is the one it began with, or no weight is called that", "check earlier, start and targets")

    @staticmethod
    def refusal(message: str, fix: str) -> SpecError:
        return SpecError([Problem("methods", "orthalign", message, fix)])

    def updates(self, folder: Path) -> dict[str, Tensor]:
        """The update of an earlier run to each matrix. Raises SpecError."""
        start = Path(self.config.start) if self.config.start else policies.base_of(folder) or self.run.attempt.policy.folder
        before, after = (dict(policies.load_model(place, torch.float32).named_parameters()) for place in (start, folder))
        wanted = [part.strip() for part in self.config.targets.split(",") if part.strip()]
        names = [name for name, value in after.items() if value.dim() == 2 and (not wanted or any(part in name for part in wanted))]
        if wrong := [name for name in names if name not in before or before[name].shape != after[name].shape]:
            raise self.refusal(f"start and end of the earlier run have different shapes: {wrong[0]}", "check earlier and start")
        made = {name: (after[name] - before[name]).detach() for name in names}
        return {name: update for name, update in made.items() if update.any()}

    def spectrum(self, update: Tensor) -> None:
        values = torch.linalg.svdvals(update)
        for place in range(SHOWN):
            self.log(f"spectrum/{place:02d}", values[place * len(values) // SHOWN] / values[0])

    @torch.no_grad()
    def gradients(self, model: Any) -> None:
        before = after = 0.0
        changed, inside = list[Tensor](), list[Tensor]()
        for name, parameter in model.named_parameters():
            weight = weight_of(name)
            if parameter.grad is None or weight not in self.bases:
                continue
            basis = self.bases[weight]
            added = self.added(name, parameter)
            changed.append(added.norm())
            inside.append((basis.T @ added).norm())
            if self.config.exact:
                parameter.sub_(basis @ (basis.T @ added))
            before = before + parameter.grad.pow(2).sum()
            parameter.grad.copy_(project_gradient(parameter.grad, basis))
            after = after + parameter.grad.pow(2).sum()
        if changed:
            self.log("gradient_kept", (torch.as_tensor(after) / torch.as_tensor(before).clamp(min=1e-30)).sqrt())
            self.log("leak", torch.stack(inside).norm() / torch.stack(changed).norm().clamp(min=1e-12))

    def added(self, name: str, parameter: Tensor) -> Tensor:
        """This run's accumulated update to a weight; a lora_B starts at 0."""
        if ".lora_B." in name:
            return parameter
        if not self.begun:
            self.begun = {held: value for held, value in self.run.reference.named_parameters() if held in self.bases}
        return parameter - self.begun[name]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Gradient after projection",
                (Series("orthalign/gradient_kept", "share of gradient norm kept"), Series("orthalign/leak", "update in protected directions")),
                help="Gradient norm after projection divided by the norm before it; share of the weight update's norm in protected directions.",
            ),
            Panel(
                "Singular values of the earlier update",
                tuple(Series(f"orthalign/spectrum/{place:02d}", f"from {place * SHOWN} %") for place in range(SHOWN)),
                help="Relative to the largest, averaged over the matrices; logged once. The first (1 - null ratio) of them are protected.",
            ),
        )
