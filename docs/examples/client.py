# %% [markdown]
# The client of Policy Lab, cell by cell (VS Code, Jupyter with jupytext, or `python client.py`).
#
# Install it from your lab: the command is under Access tokens → API documentation. Set LAB_URL and LAB_TOKEN; the token needs the scopes of the
# presets "Reading" and "Launching and reading".

# %% Which runs are there? Newest first, page by page as they are needed.
from policy_lab import Lab, LabError

lab = Lab()
runs = list(lab.runs(archived="any"))
for run in runs[:10]:
    print(run.number, run.status, run.name, run.latest.get("reward"))

# %% Metrics of the newest run with rollouts, as a table with a column per metric.
read = next(run for run in runs if run.rollouts)
points = lab.metrics(read).to_pandas()
table = points.pivot(index="step", columns="name", values="value")
print(table.tail())

# %% Rollouts by the filters of the browser's address: here the best ones of the first hundred steps.
best = lab.rollouts(read, ["step:le:100", "reward:ge:0.5"], sort="-reward")
frame = best.to_pandas()
print(frame[["step", "reward", "length", "completion"]].head() if len(frame) else "no rollout has such a reward")

# %% Reading in pieces: `position` is where the next rows begin. It is text; keep it in a file and go on tomorrow.
first = lab.rollouts(read)
newest = next(iter(first))
rest = list(lab.rollouts(read, after=first.position))
assert newest.id not in {rollout.id for rollout in rest}

# %% The tokens of one rollout, with their log-probabilities and entropies.
tokens = lab.tokens(newest.id)
uncertain = sorted(zip(tokens.entropies, tokens.ids, strict=True), key=lambda pair: -(pair[0] or 0))[:5]
print(uncertain)

# %% What people said of rollouts, and how far they agree.
agreement = {}
for queue in lab.queues():
    labels = [label for label in lab.labels(queue) if label.state in ("submitted", "accepted")]
    agreement[queue.name] = lab.ask("GET", f"/queues/{queue.id}/agreement")["reading"]
    print(queue.name, len(labels), "labels,", agreement[queue.name])

# %% Rows of the newest frozen version, in TRL's format.
rows = []
for dataset in lab.datasets():
    ready = [version for version in lab.dataset(dataset.id).versions if version.state == "ready"]
    if ready:
        rows = list(lab.version_rows(ready[0]))
        print(dataset.name, ready[0].number, len(rows), "rows")
        break

# %% Launch. What is wrong is said with its field and the fix, and nothing is queued.
problems = []
try:
    lab.launch("grpo", {"training": {"max_steps": 0}}, check=False)
except LabError as error:
    problems = list(error.problems)
    for problem in problems:
        print(problem.field, "·", problem.message, "·", problem.fix)
launched = lab.launch("grpo", {"training": {"max_steps": 5}}, name="from a notebook", check=False).runs[-1]
print(launched.url)

# %% Follow it: metrics and rollouts as they come, each once. A lab that is restarted meanwhile is waited for.
for update in lab.stream(launched):
    print(update.run.status, update.run.step, [point.name for point in update.points], len(update.rollouts))
    if update.run.status == "queued":
        lab.stop(launched)  # here nothing waits for a worker; leave this out to see it train

# %%
print(lab.wait(launched).status)
