"""What methods keep beyond an episode is in the checkpoint of the run."""

import io

import torch

from trainers.methods.bases.dapo import DAPO
from trainers.methods.stack import Stack


def test_the_store_of_a_run_comes_back_with_its_stack(make_session):
    first, second = (Stack(DAPO()) for _ in range(2))
    first.run, second.run = make_session().run, make_session().run
    first.context.store.add("questions", {"text": "What?", "solved": 0.5}, [1, 2])
    file = io.BytesIO()
    torch.save(first.state(), file)
    file.seek(0)
    second.restore(torch.load(file, weights_only=True))
    assert second.context.store.items("questions") == [{"text": "What?", "solved": 0.5}, [1, 2]]
    second.restore({"methods": {}, "history": None})
    assert second.context.store.size("questions") == 2
