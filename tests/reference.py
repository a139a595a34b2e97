"""The paper's equations as plain loops over Python floats: the oracle of every fast path.

Nothing here is fast, sparse or clever. Items are numbered from 0; weights are nested lists with
one row per item.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# Section 5.1: relative ratings -----------------------------------------------------------------


def relative_rating(count: float, watchers_counts: Sequence[float]) -> float:
    """Share of the item's watchers whose count is no larger."""
    n_no_larger = 0
    for other in watchers_counts:
        if other <= count:
            n_no_larger += 1
    return n_no_larger / len(watchers_counts)


# Eq. 5 and 6: like and confidence --------------------------------------------------------------


def like(rating: float) -> int:
    return 1 if rating > 0 else 0


def confidence(rating: float, alpha: float) -> float:
    """Of a like; a rating of -1 is a dislike, which is as sure as a like of rating 1."""
    return 1.0 + alpha * abs(rating)


# Eq. 9 to 14: the model ------------------------------------------------------------------------


def hidden(context, likes, confidences, W, A, b, g=math.tanh):
    """Eq. 9, summed over every item of the context, liked or not; Eq. 13 for all items."""
    units = []
    for k in range(len(b)):
        total = b[k]
        for item in context:
            total += W[item][k] * likes[item] * confidences[item]
            total += A[item][k] * (1 - likes[item]) * confidences[item]
        units.append(g(total))
    return units


def scaled_hidden(context, likes, confidences, W, A, b, g, alpha, input_scale, disliked=()):
    """Eq. 9 with scaled inputs; see `ModelConfig.input_scale`.

    The confidence of a disliked item is scaled as that of a like is without its history.
    """
    if input_scale == "none":
        return hidden(context, likes, confidences, W, A, b, g)
    by_like = {item: likes[item] * confidences[item] / (1.0 + alpha) for item in context}
    if input_scale == "history":
        total = sum(by_like.values())
        by_like = {item: c / math.sqrt(total) if c > 0 else 0.0 for item, c in by_like.items()}
    units = []
    for k in range(len(b)):
        total = b[k]
        for item in context:
            total += W[item][k] * by_like[item]
            scale = 1.0 + alpha if item in disliked else len(W)
            total += A[item][k] * (1 - likes[item]) * confidences[item] / scale
        units.append(g(total))
    return units


def deeper(h, U, b, g):
    """One more hidden layer (Section 4)."""
    units = []
    for k in range(len(b)):
        total = b[k]
        for n in range(len(h)):
            total += U[k][n] * h[n]
        units.append(g(total))
    return units


ACTIVATIONS = {
    "tanh": math.tanh,
    "sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)),
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x / (1.0 + math.exp(-x)),
    "identity": lambda x: x,
}


def logit(item, h, V, d):
    """Eq. 10 and 12 before the sigmoid."""
    z = d[item]
    for k in range(len(h)):
        z += V[item][k] * h[k]
    return z


def probability(item, h, V, d):
    """Eq. 10 and 12."""
    return 1.0 / (1.0 + math.exp(-logit(item, h, V, d)))


def log_likelihood_of_target(item, context, likes, confidences, W, A, b, V, d):
    p = probability(item, hidden(context, likes, confidences, W, A, b), V, d)
    return math.log(p) if likes[item] == 1 else math.log(1.0 - p)


def joint_probability(ordering, likes, confidences, W, A, b, V, d):
    """Eq. 8 along one ordering."""
    product = 1.0
    for position, item in enumerate(ordering):
        context = ordering[:position]
        product *= math.exp(
            log_likelihood_of_target(item, context, likes, confidences, W, A, b, V, d)
        )
    return product


def ordered_cost(ordering, likes, confidences, W, A, b, V, d):
    """Eq. 11 along one ordering."""
    total = 0.0
    for position, item in enumerate(ordering):
        context = ordering[:position]
        log_p = log_likelihood_of_target(item, context, likes, confidences, W, A, b, V, d)
        total -= confidences[item] * log_p
    return total


def orderless_cost(ordering, i, likes, confidences, W, A, b, V, d):
    """Eq. 14 with c and t of item o_j, for position i from 1."""
    n_items = len(ordering)
    context, targets = ordering[: i - 1], ordering[i - 1 :]
    total = 0.0
    for item in targets:
        log_p = log_likelihood_of_target(item, context, likes, confidences, W, A, b, V, d)
        total -= confidences[item] * log_p
    return n_items / (n_items - i + 1) * total


# Eq. 15, recall and nDCG: the metrics ----------------------------------------------------------
# A user is the scores of all items, the candidates (items to rank), and the held-out ones of them.


def shared_places(scores, candidates, item):
    """The places 0, 1, ... that an item may take, equal scores in any order."""
    above = 0
    tied = 0
    for other in candidates:
        if scores[other] > scores[item]:
            above += 1
        elif scores[other] == scores[item]:
            tied += 1
    return list(range(above, above + tied))


def percentile_rank(scores, candidates, item):
    if len(candidates) == 1:
        return 0.0
    places = shared_places(scores, candidates, item)
    return sum(places) / len(places) / (len(candidates) - 1)


def mean_percentage_ranking(users):
    """Eq. 15 in percent; `users` are (scores, candidates, {item: relative rating})."""
    numerator = 0.0
    denominator = 0.0
    for scores, candidates, relative_ratings in users:
        for item, gamma in relative_ratings.items():
            numerator += gamma * percentile_rank(scores, candidates, item)
            denominator += gamma
    return 100.0 * numerator / denominator


def expected_hits(scores, candidates, held_out, k):
    hits = 0.0
    for item in held_out:
        places = shared_places(scores, candidates, item)
        for place in places:
            if place < k:
                hits += 1.0 / len(places)
    return hits


def recall(scores, candidates, held_out, k):
    return expected_hits(scores, candidates, held_out, k) / min(k, len(held_out))


def recall_full(scores, candidates, held_out, k):
    return expected_hits(scores, candidates, held_out, k) / len(held_out)


def ndcg(scores, candidates, held_out, k):
    gain = 0.0
    for item in held_out:
        places = shared_places(scores, candidates, item)
        for place in places:
            if place < k:
                gain += 1.0 / math.log2(place + 2) / len(places)
    ideal = 0.0
    for place in range(min(k, len(held_out))):
        ideal += 1.0 / math.log2(place + 2)
    return gain / ideal


# Section 3, Eq. 1 to 4: CF-NADE for ratings ------------------------------------------------------
#
# Ratings are numbered from 0 to K - 1; W[j][k] are the hidden units' weights of item j with rating
# k, V[j][k] likewise, d[j][k] a number.


def shared_between_ratings(steps):
    """The weights of rating k are the sum of the first k steps."""
    found = []
    for item in steps:
        weights = []
        for k in range(len(item)):
            total = [0.0] * len(item[k])
            for step in item[: k + 1]:
                for unit, value in enumerate(step):
                    total[unit] += value
            weights.append(total)
        found.append(weights)
    return found


def rating_hidden(context, ratings, W, b, g=math.tanh):
    """Eq. 4, over the items of the context."""
    units = []
    for unit in range(len(b)):
        total = b[unit]
        for item in context:
            total += W[item][ratings[item]][unit]
        units.append(g(total))
    return units


def rating_scores(item, h, V, d):
    """Eq. 3, for every rating."""
    scores = []
    for k in range(len(V[item])):
        score = d[item][k]
        for unit in range(len(h)):
            score += V[item][k][unit] * h[unit]
        scores.append(score)
    return scores


def rating_probabilities(scores):
    """Eq. 2."""
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def joint_rating_probability(ordering, ratings, W, b, V, d):
    """Eq. 1 along one ordering."""
    product = 1.0
    for position, item in enumerate(ordering):
        h = rating_hidden(ordering[:position], ratings, W, b)
        product *= rating_probabilities(rating_scores(item, h, V, d))[ratings[item]]
    return product


def orderless_rating_cost(ordering, i, ratings, W, b, V, d):
    """The cost of one split at position i, from 1: the items from i on are targets, rescaled."""
    n_items = len(ordering)
    h = rating_hidden(ordering[: i - 1], ratings, W, b)
    total = 0.0
    for item in ordering[i - 1 :]:
        p = rating_probabilities(rating_scores(item, h, V, d))[ratings[item]]
        total -= math.log(p)
    return n_items / (n_items - i + 1) * total


def plackett_luce(scores):
    """Log-probability of a list in this order: each entry is chosen among those that are left."""
    total = 0.0
    for place in range(len(scores)):
        left = sum(math.exp(score) for score in scores[place:])
        total += math.log(math.exp(scores[place]) / left)
    return total


def ordinal_cost(scores, true):
    """Two lists that begin with the true rating: down to the lowest, and up to the highest."""
    down = [scores[k] for k in range(true, -1, -1)]
    up = [scores[k] for k in range(true, len(scores))]
    return -plackett_luce(down) - plackett_luce(up)
