"""Ensembles by their definition: the mean of the members' probabilities."""

from __future__ import annotations

import numpy as np

from mlm.finetune.ensemble import averaged


def test_classes_have_the_mean_of_the_members_probabilities():
    first, second = [np.array([0.9, 0.1]), np.array([0.2, 0.8])], [np.array([0.3, 0.7]), np.array([0.4, 0.6])]
    found = averaged([first, second])
    np.testing.assert_allclose(found, [[0.6, 0.4], [0.3, 0.7]], atol=1e-15)
    assert averaged([first]) is first


def test_the_softmax_of_averaged_spans_is_the_mean_of_the_members_softmax():
    random = np.random.default_rng(1)
    members = [[random.normal(size=(7, 2)) * 3 + shift] for shift in (0.0, 50.0, -4.0)]
    members[0][0][3:5] = np.finfo(np.float32).min  # where no span may stand
    (found,) = averaged(members)

    def softmax(logits: np.ndarray) -> np.ndarray:
        powers = np.exp(logits - logits.max(axis=0))
        return powers / powers.sum(axis=0)

    expected = np.mean([softmax(member[0]) for member in members], axis=0)
    np.testing.assert_allclose(softmax(found), expected, atol=1e-13)
